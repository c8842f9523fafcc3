"""Whatever fails once in the session with the leader or in the relay: afterwards it works, or the process ends."""

from __future__ import annotations

import asyncio
import http.client
import socket
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from smq_broker.access.security import OpenBroker
from smq_broker.leader_client import leader_session as session
from smq_broker.leader_client.leader_channels import ERROR_TRAILER, LeaderChannels
from smq_broker.leader_client.leader_session import LeaderSession
from smq_broker.runtime.broker_metrics import BrokerMetrics
from smq_broker.runtime.health import HealthServer
from smq_broker.runtime.threads import RestartPolicy, ThreadSupervisor, spawn_daemon
from smq_broker.streams import relay
from smq_broker.streams.relay import Relay
from smq_core.errors import InvalidRequest, Unavailable, WrongIncarnation
from smq_proto.error_conversion import error_to_pb
from smq_proto.v1 import brokers_pb2
from smq_proto.v1 import data_pb2 as pb
from support.fault_injection.nth_failure import NthFailure
from support.waiting import HANG_GUARD, eventually

# Of each kind, one less than this is made to fail in turn. A session repeats the same calls with each report.
MAX_CALLS = 5


@pytest.fixture(autouse=True)
def no_logs() -> Iterator[None]:
    with capture_logs():
        yield


def unexpected() -> Exception:
    return RuntimeError("can't start new thread")


class RpcFailed(grpc.RpcError):
    """No answer."""


class SessionWithFault:
    """A session with two leaders in memory, of which the first one does not answer. One call of one kind fails."""

    def __init__(self, failure: NthFailure, patch: pytest.MonkeyPatch) -> None:
        self.reports: list[brokers_pb2.BrokerReport] = []
        self.assigned: list[Any] = []
        self.over = threading.Event()
        self.disk_is_frozen = threading.Event()
        self.changes_after_status = 0
        """How many statuses are outdated as soon as they are made."""
        self.refused = 0
        """How often no status could be made."""
        self.failure, self.segments = failure, 0
        patch.setattr(session, "REPORT_SECONDS", 0.005)
        patch.setattr(session, "POLL_SECONDS", 0.002)
        patch.setattr(session, "COALESCE_SECONDS", 0.0)
        patch.setattr(session.grpc, "insecure_channel", failure.wrap("channel", self.channel))
        patch.setattr(
            session, "BrokersStub", lambda channel: SimpleNamespace(Report=lambda *a, **k: channel.report(*a))
        )
        metrics = BrokerMetrics(CollectorRegistry())
        policy = RestartPolicy(pause_seconds=0)
        self.threads = ThreadSupervisor(metrics, spawn=self.spawn, restart_policy=policy)
        self.report_due = threading.Event()
        stand_in: Any = SimpleNamespace
        reporter = stand_in(broker="b", status=failure.wrap("status", self.status), recovered_incarnations=lambda: [])
        registry = stand_in(
            incarnation="b-1",
            unresponsive_followers=failure.wrap("followers", list),
            remove_expired=failure.wrap("remove_expired", lambda: None),
        )
        watcher = stand_in(set_assigned_segments=failure.wrap("assigned", self.assigned.append))
        clock = stand_in(follow=failure.wrap("clock", lambda: None))
        self.session = LeaderSession(
            address="b:1",
            node="",
            zone="",
            leaders=["one:1", "two:1"],
            channels=LeaderChannels(),
            security=OpenBroker(),
            reporter=reporter,
            registry=registry,
            watcher=watcher,
            clock=clock,
            threads=self.threads,
            report_due=self.report_due,
            leaving=lambda: True,
        )

    def spawn(self, run: Callable[[], None], name: str) -> threading.Thread:
        self.failure.count("thread")
        return spawn_daemon(run, name)

    def status(self) -> pb.BrokerStatus:
        if self.over.is_set():
            raise SystemExit
        if self.disk_is_frozen.is_set():
            self.refused += 1
            raise Unavailable("the disk does not answer")
        status = pb.BrokerStatus(broker="b", segments=[pb.SegmentReport(end=self.segments)])
        if self.changes_after_status:
            self.changes_after_status -= 1
            self.segments += 1
            self.report_due.set()
        return status

    def channel(self, leader: str, options: object) -> Any:
        closed: list[bool] = []

        def report(request: brokers_pb2.BrokerReport) -> brokers_pb2.BrokerReportReply:
            if closed:
                raise ValueError("Cannot invoke RPC on closed channel!")
            if leader == "one:1":
                raise RpcFailed
            self.reports.append(request)
            return brokers_pb2.BrokerReportReply(may_leave=True)

        def close() -> None:
            closed.append(True)
            self.failure.count("close")

        return SimpleNamespace(report=self.failure.wrap("report", report), close=close)

    @property
    def ended(self) -> bool:
        return self.threads.process_failure is not None

    def run(self) -> None:
        try:
            self.session.start()
        except Unavailable:
            return  # the process ends
        for number in (1, 2, 3):
            self.segments = number
            self.report_due.set()
            self.wait(lambda n=number: any(it.status.segments[0].end == n for it in list(self.reports)))
        self.wait(lambda: self.failure.failed or len(self.reports) > 2 * MAX_CALLS)
        seen = len(self.reports), len(self.assigned)
        self.wait(lambda: len(self.reports) > seen[0] and len(self.assigned) > seen[1])
        self.wait(lambda: self.session.may_leave.is_set())

    def wait(self, condition: Callable[[], object]) -> None:
        eventually(lambda: condition() or self.ended, pause=0.001)


def test_a_broker_whose_disk_does_not_answer_reports_nothing_until_it_does() -> None:
    with pytest.MonkeyPatch.context() as patch:
        it = SessionWithFault(NthFailure("nothing", 1, unexpected), patch)
        try:
            it.session.start()
            eventually(lambda: it.reports)
            it.disk_is_frozen.set()
            eventually(lambda: it.refused)
            reports = len(it.reports)
            eventually(lambda: it.refused > 5)
            assert len(it.reports) == reports
            it.disk_is_frozen.clear()
            eventually(lambda: len(it.reports) > reports)
        finally:
            it.over.set()
            eventually(lambda: it.ended)


def test_a_change_that_comes_after_the_status_was_taken_is_reported_at_once() -> None:
    with pytest.MonkeyPatch.context() as patch:
        it = SessionWithFault(NthFailure("nothing", 1, unexpected), patch)
        patch.setattr(session, "REPORT_SECONDS", 3600.0)
        it.changes_after_status = 3
        try:
            it.session.start()
            it.report_due.set()
            eventually(lambda: any(report.status.segments[0].end == 3 for report in list(it.reports)))
        finally:
            it.over.set()
            it.report_due.set()
            eventually(lambda: it.ended)


def test_a_process_that_is_declared_gone_ends() -> None:
    with pytest.MonkeyPatch.context() as patch:
        it = SessionWithFault(NthFailure("nothing", 1, unexpected), patch)
        patch.setattr(LeaderChannels, "failure_of", lambda *_: WrongIncarnation("b-1 was declared gone"))
        try:
            it.session.start()
            eventually(lambda: it.ended)
            assert "declared this process gone" in (it.threads.process_failure or "")
            assert it.assigned[0] == (), "it hosts no segment any more"
            status, text = readyz(it.threads)
            assert status == 503 and "declared this process gone" in text
        finally:
            it.over.set()


def readyz(threads: ThreadSupervisor) -> tuple[int, str]:
    """What the probe of a process with these threads gets, which has no other reason to be unready."""
    others = ThreadSupervisor(BrokerMetrics(CollectorRegistry()))
    others.process_failure = threads.process_failure
    address = HealthServer("127.0.0.1:0", CollectorRegistry(), lambda: None, others).address
    connection = http.client.HTTPConnection(address, timeout=HANG_GUARD)
    connection.request("GET", "/readyz")
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


@pytest.mark.parametrize(
    "kind",
    ["thread", "status", "followers", "remove_expired", "assigned", "clock", "channel", "report", "close"],
)
def test_after_the_nth_fault_a_session_reports_again(kind: str) -> None:
    failed = 0
    for n in range(1, MAX_CALLS):
        failure = NthFailure(kind, n, unexpected)
        with pytest.MonkeyPatch.context() as patch:
            it = SessionWithFault(failure, patch)
            try:
                it.run()
                assert not it.ended, it.threads.process_failure
            finally:
                it.over.set()
                eventually(lambda: it.ended or kind == "thread")  # noqa: B023
        failed += failure.failed
    assert failed


class EchoServer:
    """What clients reach through the relay."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection = self._socket.accept()[0]
            except OSError:
                return
            threading.Thread(target=self._echo, args=(connection,), daemon=True).start()

    def _echo(self, connection: socket.socket) -> None:
        with connection:
            while data := connection.recv(1024):
                connection.sendall(data)

    def close(self) -> None:
        self._socket.close()


def echoes(address: str, target: str) -> bool:
    """Whether a client reaches the target through the relay. False if the relay closes the connection before."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), HANG_GUARD) as client:
        client.settimeout(HANG_GUARD)
        try:
            client.sendall(f"CONNECT {target} HTTP/1.1\r\n\r\n".encode())
            head = b""
            while b"\r\n\r\n" not in head:
                data = client.recv(1)
                if not data:
                    return False
                head += data
            if b" 200 " not in head:
                return False
            client.sendall(b"hello")
            return client.recv(5) == b"hello"
        except ConnectionError:
            return False


@pytest.mark.parametrize("kind", ["thread", "resolve", "to_thread", "open_connection"])
def test_after_the_nth_fault_the_relay_connects_again(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    server = EchoServer()
    for n in (1, 2, 3):
        failure = NthFailure(kind, n, unexpected)
        registry = CollectorRegistry()
        with monkeypatch.context() as patch:
            faulty = FaultyAsyncio(failure)
            patch.setattr(relay, "asyncio", faulty)

            def spawn(run: Callable[[], None], name: str, failure: NthFailure = failure) -> threading.Thread:
                failure.count("thread")
                return spawn_daemon(run, name)

            threads = ThreadSupervisor(BrokerMetrics(registry), spawn=spawn)
            targets: Any = SimpleNamespace(resolve=failure.wrap("resolve", lambda target: target))
            it = Relay("127.0.0.1:0", targets, registry, threads)
            try:
                it.start()
            except Unavailable:
                assert kind == "thread"
                continue
            connected = [echoes(it.address, server.address) for _ in range(4)]
            # At most the one connection that the fault met fails. Nothing of it stays open.
            assert connected.count(True) >= 3, connected
            assert failure.failed or kind == "thread"
            eventually(lambda: registry.get_sample_value("smq_relay_connections") == 0)  # noqa: B023
            assert threads.process_failure is None
    server.close()


class FaultyAsyncio:
    """The module asyncio as the relay sees it, of which one call fails."""

    def __init__(self, failure: NthFailure) -> None:
        self._failure = failure

    def __getattr__(self, name: str) -> Any:
        found = getattr(asyncio, name)
        return self._failure.wrap(name, found) if name in ("to_thread", "open_connection") else found


class RpcRejected(grpc.RpcError, grpc.Call):  # type: ignore[misc]
    """The answer of a leader of another protocol."""

    __abstractmethods__: frozenset[str] = frozenset()

    def trailing_metadata(self) -> Any:
        return [(ERROR_TRAILER, error_to_pb(InvalidRequest("protocol version 3")).SerializeToString())]


def test_a_broker_says_why_its_reports_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    it = SessionWithFault(NthFailure("", 0, unexpected), monkeypatch)
    for attempt in range(2):
        with capture_logs() as logs:
            it.session._try_next_leader("one:1", LeaderChannels().failure_of(RpcRejected(), "one:1"))
        rejected = [line["message"] for line in logs if line["event"] == "leader.report_rejected"]
        assert rejected == (["protocol version 3"] if attempt == 0 else []), "it is said once"
