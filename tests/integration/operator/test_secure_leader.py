"""A leader with --security=required as a process, and what strangers, clients and brokers get of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import pyarrow.flight as fl
import pytest
from google.protobuf.empty_pb2 import Empty

from smq_core import errors
from smq_core.access.peers import Peer, Role, parse_peer
from smq_core.errors import SmqError
from smq_operator.local.security.folder import SecurityFolder
from smq_proto.v1 import admin_pb2, auth_pb2, brokers_pb2
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import PROTOCOL
from support.leader_services import call_of
from support.processes.leader import LeaderProcess, error_of, manifest
from support.processes.seaweed import Seaweed
from support.waiting import HANG_GUARD, eventually

pytestmark = pytest.mark.integration

INCARNATION = "0123456789abcdef0123456789abcdef"


@pytest.fixture(scope="module")
def leader(tmp_path_factory: pytest.TempPathFactory, seaweed: Seaweed) -> Iterator[LeaderProcess]:
    """One leader for all tests, without brokers."""
    started = LeaderProcess(
        tmp_path_factory.mktemp("secure"), seaweed.settings("secure"), "--security=required", brokers=0
    )
    yield started.start()
    started.stop()


def broker_token(leader: LeaderProcess, incarnation: str = INCARNATION) -> str:
    return SecurityFolder(leader.folder / "security", time.time).broker_tokens(lambda _: False).issue(incarnation)


def call(leader: LeaderProcess, token: str, method: str, request: object) -> Any:
    with leader.secure_channel(token) as channel:
        try:
            return call_of(channel, method)(request, timeout=HANG_GUARD)
        except grpc.RpcError as refused:
            raise error_of(refused) from refused


def test_who_has_a_token_gets_in_and_who_has_none_does_not(leader: LeaderProcess) -> None:
    assert leader.apply(manifest()).topic == "default/t"
    assert leader.call("WhoAmI", Empty()) == auth_pb2.WhoAmIReply(identity="admin", method="StaticToken")
    for token in ("", "wrong"):
        with pytest.raises(errors.Unauthenticated):
            call(leader, token, "ListTopics", admin_pb2.ListTopicsRequest())
    with grpc.insecure_channel(leader.address) as channel, pytest.raises(grpc.RpcError) as clear:
        call_of(channel, "ListTopics")(admin_pb2.ListTopicsRequest(), timeout=HANG_GUARD)
    assert clear.value.code() is grpc.StatusCode.UNAVAILABLE
    assert leader.topic("t").info.name == "default/t"
    status, metrics = leader.http_get("/metrics")
    assert status == 200 and 'smq_leader_access_denied_total{reason="invalid_token"} 1.0' in metrics
    assert 'smq_leader_access_denied_total{reason="no_token"} 1.0' in metrics


def test_a_restarted_leader_has_the_same_roots_and_tokens(leader: LeaderProcess) -> None:
    token = broker_token(leader)
    roots = call(leader, token, "Login", auth_pb2.LoginRequest(incarnation=INCARNATION)).roots
    leader.kill()
    leader.start()
    assert call(leader, token, "Login", auth_pb2.LoginRequest(incarnation=INCARNATION)).roots == roots
    assert leader.call("WhoAmI", Empty()).identity == "admin"


class _Broker(fl.FlightServerBase):  # type: ignore[misc]
    """Notes who calls, and answers nothing that the leader could use."""

    def __init__(self, **tls: Any) -> None:
        super().__init__("grpc+tls://127.0.0.1:0", verify_client=True, **tls)
        self.callers: list[tuple[str, Peer]] = []

    def do_action(self, context: Any, action: Any) -> list[bytes]:
        self.callers.append((action.type, parse_peer(context.peer_identity().decode())))
        raise fl.FlightUnavailableError("a stand-in")


@contextmanager
def broker(leader: LeaderProcess) -> Iterator[_Broker]:
    """A broker as far as the leader can see it without segments: it has logged in, and reports."""
    token = broker_token(leader)
    login = call(leader, token, "Login", auth_pb2.LoginRequest(incarnation=INCARNATION))
    tls = {"tls_certificates": [(login.certificate_chain, login.private_key)], "root_certificates": login.roots}
    over = threading.Event()
    with _Broker(**tls) as server:
        report = brokers_pb2.BrokerReport(
            protocol=PROTOCOL,
            broker="stand-in",
            incarnation=INCARNATION,
            address=f"127.0.0.1:{server.port}",
            status=pb.BrokerStatus(broker="stand-in", incarnation=INCARNATION, memory_limit=1 << 30),
        )

        def reporting() -> None:
            while not over.wait(0.2):
                with leader.secure_channel(token) as channel:
                    call_of(channel, "Report")(report, timeout=HANG_GUARD)

        thread = threading.Thread(target=reporting)
        thread.start()
        try:
            yield server
        finally:
            over.set()
            thread.join(HANG_GUARD)


def test_a_broker_joins_by_its_token_and_the_leader_shows_its_certificate(leader: LeaderProcess) -> None:
    with broker(leader) as server:
        leader.wait_for_brokers(1)
        leader.apply(manifest("u", replicas=1, durability="Stored"))
        calls = eventually(lambda: server.callers or None, what="the leader opens a segment")
        assert {peer.role for _, peer in calls} == {Role.LEADER}
        assert "open" in {action for action, _ in calls}


def refused(leader: LeaderProcess, token: str, method: str, request: object) -> SmqError:
    with pytest.raises(SmqError) as caught:
        call(leader, token, method, request)
    return caught.value


def test_a_registration_by_somebody_else_is_refused(leader: LeaderProcess) -> None:
    report = brokers_pb2.BrokerReport(protocol=PROTOCOL, broker="b", incarnation=INCARNATION, address="127.0.0.1:1")
    admin = (leader.folder / "security" / "admin.token").read_text()
    for token in (admin, broker_token(leader, "f" * 32)):
        assert isinstance(refused(leader, token, "Report", report), errors.PermissionDenied)
    assert isinstance(refused(leader, "wrong", "Report", report), errors.Unauthenticated)
    assert "b" not in {broker.name for broker in leader.brokers()}


def test_no_secret_is_in_the_logs(leader: LeaderProcess) -> None:
    folder = leader.folder / "security"
    token = broker_token(leader)
    call(leader, token, "Login", auth_pb2.LoginRequest(incarnation=INCARNATION))
    refused(leader, "guessed-token", "ListTopics", admin_pb2.ListTopicsRequest())
    text = leader.log.read_text()
    assert "access.denied" in text and "access.audit" in text
    secrets = [(folder / "admin.token").read_text(), token, token.rpartition(".")[2], "guessed-token", "PRIVATE KEY"]
    assert not [secret for secret in secrets if secret in text]
