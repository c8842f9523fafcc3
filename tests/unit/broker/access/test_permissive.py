"""A permissive broker: one port for callers with and without certificates, and to whom it connects how."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import grpc
import pyarrow.flight as fl
import pytest
from google.protobuf.empty_pb2 import Empty
from structlog.testing import capture_logs

from smq_broker.access import anonymous
from smq_broker.access.anonymous import AnonymousCaller
from smq_broker.access.credentials import Login
from smq_broker.access.permissive_broker import PermissiveBroker
from smq_broker.access.secure_broker import SecureBroker
from smq_broker.leader_client.leader_channels import LeaderChannels
from smq_broker.leader_client.login import LeaderLogin
from smq_broker.streams.request_limit import RequestLimit
from smq_broker.streams.server import RequestHandler
from smq_broker.streams.servers import Servers, start_servers
from smq_core.access.peers import Role
from smq_core.errors import PermissionDenied, SmqError, Unauthenticated, Unreachable
from smq_proto.flight import call
from smq_proto.signed_grants import GrantVerifier
from smq_proto.v1 import brokers_pb2
from smq_proto.v1 import data_pb2 as pb
from smq_proto.v1.brokers_pb2_grpc import BrokersStub
from smq_storage.object_store.store import open_store
from support.in_memory.broker_parts import BrokerParts
from support.processes.leader_stub import RecordingLeader
from support.processes.secure_leader_stub import CONNECTION, Release, SecureLeader
from support.waiting import HANG_GUARD, eventually


class PermissiveServed:
    """Servers of the broker ``i-b1``. ``log_in`` lets its first login succeed."""

    def __init__(self, release: Release, *, logged_in: bool) -> None:
        self.release = release
        self.parts = BrokerParts("b1", open_store("memory://"))
        self._may_log_in = threading.Event()
        make = partial(
            SecureBroker,
            log_in=self.login,
            leader_answered_at=lambda: None,
            topic_name=lambda uid: "",
            broker_metrics=self.parts.metrics,
        )
        self.security = PermissiveBroker(self.new_login() if logged_in else None, make=make, log_in=self.login)
        handler = RequestHandler(
            access=self.security.access,
            registry=self.parts.registry,
            actions=self.parts.actions(),
            broker_metrics=self.parts.metrics,
            threads=self.parts.threads,
            accepting_batches=threading.Event(),
            max_batch=1 << 20,
            uploads=self.parts.uploads,
            clients=self.parts.clients,
            limit=RequestLimit(),
        )
        self.servers: Servers = start_servers(
            "127.0.0.1:0",
            security=self.security,
            handler=handler,
            broker_metrics=self.parts.metrics,
            threads=self.parts.threads,
        )
        self.address = f"127.0.0.1:{self.servers.port}"
        self.security.start_renewal(self.servers.swap, self.parts.threads)

    def new_login(self) -> Login:
        return Login(self.release.name, self.release.broker("i-b1"), GrantVerifier([self.release.signer.public_key]))

    def login(self) -> Login:
        assert self._may_log_in.wait(HANG_GUARD)
        return self.new_login()

    def log_in(self) -> None:
        self._may_log_in.set()
        eventually(lambda: self.over_tls(Role.LEADER, "status") is None, what="a server for TLS")

    def over_tls(self, role: Role, action: str) -> SmqError | None:
        return answer(self.release.connect(self.address, "i-b1", self.release.certificate(role, "x")), action)

    def in_clear_text(self, action: str) -> SmqError | None:
        return answer(fl.connect(f"grpc://{self.address}", generic_options=CONNECTION), action)

    def counted(self, name: str) -> float:
        return self.parts.metric("smq_broker_open_calls_total", call=name) or 0.0


def answer(client: fl.FlightClient, action: str) -> SmqError | None:
    try:
        call(client, action, pb.HostedSegmentsRequest(uid="u") if action == "segments" else Empty(), timeout=HANG_GUARD)
    except SmqError as error:
        return error
    finally:
        client.close()
    return None


@pytest.fixture
def release(tmp_path: Path) -> Release:
    return Release(tmp_path)


@pytest.fixture
def served(release: Release) -> PermissiveServed:
    return PermissiveServed(release, logged_in=True)


def test_callers_in_clear_text_may_do_everything_and_are_counted(served: PermissiveServed) -> None:
    with capture_logs() as logs:
        for _ in range(3):
            assert served.in_clear_text("status") is served.in_clear_text("segments") is None
    assert (served.counted("status"), served.counted("segments")) == (3, 3)
    lines = [line for line in logs if line["event"] == "access.open_call"]
    assert [line["call"] for line in lines] == ["status", "segments"], "one line in a while is enough"
    assert all(line["peer"].startswith("127.0.0.1:") for line in lines)


def test_over_tls_the_rights_are_those_of_the_certificate(served: PermissiveServed) -> None:
    assert served.over_tls(Role.LEADER, "segments") is None
    assert isinstance(served.over_tls(Role.CLIENT, "segments"), PermissionDenied)
    assert isinstance(served.over_tls(Role.BROKER, "segments"), PermissionDenied)
    assert not served.counted("segments") and not served.counted("status")


def test_over_tls_a_certificate_of_the_release_is_needed(served: PermissiveServed, tmp_path: Path) -> None:
    roots, name = served.release.authority.roots, "i-b1.broker.smq.internal"
    location = f"grpc+tls://{served.address}"
    nobody = fl.connect(location, tls_root_certs=roots, override_hostname=name, generic_options=CONNECTION)
    assert isinstance(answer(nobody, "status"), Unreachable)
    other = Release(tmp_path, "release-2").certificate(Role.LEADER, "leader-1")
    stranger = fl.connect(
        location,
        tls_root_certs=roots,
        override_hostname=name,
        cert_chain=other.chain,
        private_key=other.key,
        generic_options=CONNECTION,
    )
    assert isinstance(answer(stranger, "status"), Unreachable)


def test_it_serves_clear_text_before_it_has_a_certificate(release: Release) -> None:
    served = PermissiveServed(release, logged_in=False)
    assert served.in_clear_text("status") is None
    assert isinstance(served.over_tls(Role.LEADER, "status"), Unreachable)
    assert served.security.certificate is None
    served.log_in()
    assert served.over_tls(Role.LEADER, "segments") is None
    assert isinstance(served.over_tls(Role.CLIENT, "segments"), PermissionDenied)
    assert served.in_clear_text("status") is None


def test_another_certificate_is_shown_at_the_same_port(served: PermissiveServed) -> None:
    port = served.servers.port
    served.servers.swap()
    assert served.servers.port == port
    assert served.over_tls(Role.LEADER, "status") is served.in_clear_text("status") is None


def test_a_stream_in_clear_text_counts_while_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(anonymous, "RECHECK_SECONDS", 50.0)
    seen: list[str] = []
    caller = AnonymousCaller(seen.append)
    caller.admit("tail")
    assert time.monotonic() < caller.check_at < time.monotonic() + 51
    caller.check_at = 0
    caller.recheck()
    assert seen == ["tail", "tail"] and caller.check_at > time.monotonic()


# ---- connections to others


class _NamingServer(fl.FlightServerBase):  # type: ignore[misc]
    def do_action(self, context: object, action: object) -> list[bytes]:
        return [context.peer_identity()]  # type: ignore[attr-defined]


def identity_at(dial: Callable[..., fl.FlightClient], address: str) -> bytes:
    with dial(address, "i-b2", CONNECTION) as client:
        return call(client, "status", Empty(), timeout=HANG_GUARD)


def test_it_connects_over_tls_to_whoever_speaks_it(release: Release, served: PermissiveServed) -> None:
    own = release.broker("i-b2")
    with _NamingServer(
        "grpc+tls://127.0.0.1:0",
        tls_certificates=[(own.chain, own.key)],
        verify_client=True,
        root_certificates=own.roots,
    ) as secure:
        assert b"/broker/i-b1" in identity_at(served.security.dialer.connect, f"127.0.0.1:{secure.port}")
    with _NamingServer("grpc://127.0.0.1:0") as clear:
        assert identity_at(served.security.dialer.connect, f"127.0.0.1:{clear.port}") == b""
    early = PermissiveServed(release, logged_in=False)
    assert answer(early.security.dialer.connect(served.address, "i-b1", CONNECTION), "status") is None
    assert served.counted("status") == 1, "without a certificate it connects in clear text"


class _OpenLeader(RecordingLeader):
    """Notes which token it got."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens: list[str] = []

    def Report(self, request: brokers_pb2.BrokerReport, context: grpc.ServicerContext) -> brokers_pb2.BrokerReportReply:
        metadata = dict(context.invocation_metadata())  # type: ignore[arg-type]
        self.tokens.append(metadata.get("authorization", ""))
        return super().Report(request, context)


@pytest.fixture
def open_leader() -> Iterator[_OpenLeader]:
    with _OpenLeader() as leader:
        yield leader


def report(channels: LeaderChannels, address: str) -> SmqError | None:
    with channels.connect(address) as channel:
        try:
            BrokersStub(channel).Report(brokers_pb2.BrokerReport(), timeout=HANG_GUARD)
        except grpc.RpcError as error:
            return channels.failure_of(error, address) or SmqError("nothing is known")
    return None


def test_a_leader_in_clear_text_gets_reports_and_no_token(release: Release, open_leader: _OpenLeader) -> None:
    files = (str(release.ca_file), str(release.token_file))
    assert report(LeaderChannels(*files, permissive=True), open_leader.address) is None
    assert open_leader.tokens == [""]
    assert report(LeaderChannels(*files), open_leader.address) is not None, "only a permissive broker falls back"
    assert len(open_leader.tokens) == 1
    with SecureLeader(release) as leader:
        assert report(LeaderChannels(*files, permissive=True), leader.address) is None, "it gets the token over TLS"


def test_a_permissive_broker_waits_for_no_login(release: Release, open_leader: _OpenLeader) -> None:
    channels = LeaderChannels(str(release.ca_file), str(release.token_file), permissive=True)
    assert LeaderLogin("i-b1", leaders=lambda: [open_leader.address], channels=channels).once_or_later() is None
    with SecureLeader(release) as leader:
        login = LeaderLogin("i-b1", leaders=lambda: [leader.address], channels=channels).once_or_later()
        assert login is not None and login.release == release.name


def test_an_open_broker_learns_that_its_leader_wants_tls(release: Release) -> None:
    with SecureLeader(release) as leader:
        error = report(LeaderChannels(), leader.address)
    assert isinstance(error, Unauthenticated)
    assert "speaks TLS only" in error.message and "--ca-file" in error.message and "--token-file" in error.message


def test_a_required_broker_learns_that_its_leader_speaks_no_tls(release: Release, open_leader: _OpenLeader) -> None:
    channels = LeaderChannels(str(release.ca_file), str(release.token_file))
    with pytest.raises(SmqError, match="what listens there does not speak TLS"):
        LeaderLogin("i-b1", leaders=lambda: [open_leader.address], channels=channels).once()
