"""Finds the leader among addresses of real gRPC servers, some of which do not lead."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from typing import Any

import grpc
import pyarrow.flight as fl
import pytest

from smq.transport import leader_client
from smq.transport.leader_client import ERROR_TRAILER, LeaderClient
from smq_core.errors import InvalidRequest, NoBrokers, NotLeader, SmqError, Unavailable, UnknownTopic, Unreachable
from smq_proto.error_conversion import error_to_pb
from smq_proto.v1 import admin_pb2, topics_pb2
from smq_proto.v1 import data_pb2 as pb
from support.leader_services import LeaderServicer
from support.waiting import HANG_GUARD


class FakeLeaderService(LeaderServicer):
    """Answers ListTopics and Watch, or rejects every request with ``rejection``."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rejection: SmqError | None = None
        self.hang = threading.Event()
        self.hang.set()
        self.calls = 0
        self.last_answered: int | None = None
        """The number of the last call that is answered; the next one hangs."""

    def _refuse(self, context: Any) -> None:
        self.calls += 1
        if self.last_answered is not None and self.calls > self.last_answered:
            self.hang.clear()
        self.hang.wait(HANG_GUARD)
        if self.rejection is not None:
            context.set_trailing_metadata([(ERROR_TRAILER, error_to_pb(self.rejection).SerializeToString())])
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, self.rejection.message)

    def ListTopics(self, request: Any, context: Any) -> admin_pb2.TopicList:
        self._refuse(context)
        return admin_pb2.TopicList(topics=[admin_pb2.TopicList.Topic(info=pb.TopicInfo(name=self.name))])

    def Watch(self, request: Any, context: Any) -> Iterator[pb.LocateReply]:
        self._refuse(context)
        yield pb.LocateReply(topic=pb.TopicInfo(name=self.name))


@contextmanager
def serving(service: FakeLeaderService) -> Iterator[str]:
    server = grpc.server(futures.ThreadPoolExecutor(4))
    service.serve_at(server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        service.hang.set()
        server.stop(0).wait()


def called(link: LeaderClient, timeout: float = HANG_GUARD) -> str:
    return str(link.admin.ListTopics(admin_pb2.ListTopicsRequest(), timeout=timeout).topics[0].info.name)


class OtherService(grpc.GenericRpcHandler):
    """A gRPC server that does not know the methods it is asked for, unless they are named."""

    def __init__(self, *methods: str) -> None:
        self.methods = methods

    def service(self, details: Any) -> Any:
        if details.method.rpartition("/")[2] in self.methods:
            return grpc.unary_unary_rpc_method_handler(lambda request, context: b"")
        return None


@contextmanager
def other_server(*methods: str) -> Iterator[str]:
    server = grpc.server(futures.ThreadPoolExecutor(4), handlers=(OtherService(*methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(0).wait()


def test_a_server_of_something_else_is_not_taken_for_an_old_leader() -> None:
    with other_server() as address, pytest.raises(InvalidRequest, match="something else answers at 127") as caught:
        called(LeaderClient([address]))
    assert "a gRPC server that is not the leader of SeaweedMQ; `smq dev` listens" in caught.value.message


def test_a_leader_that_lacks_a_call_is_of_an_earlier_version() -> None:
    with other_server("ListTopics") as address, pytest.raises(SmqError, match=r"is of an earlier version.* upgrade it"):
        LeaderClient([address]).admin.ListPins(admin_pb2.ListPinsRequest(), timeout=HANG_GUARD)


def test_a_server_of_http_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Answer(grpc.RpcError):
        def __init__(self, code: grpc.StatusCode, status: int) -> None:
            self.code = lambda: code
            self.details = lambda: f"Received http2 header with status: {status}"

    answer = Answer(grpc.StatusCode.UNIMPLEMENTED, 404)

    def fail(*_: object) -> Any:
        raise answer

    link = LeaderClient(["h:1"])
    monkeypatch.setattr(link, "_attempt", fail)
    with pytest.raises(InvalidRequest, match="something else answers at h:1: a server of HTTP that is not the leader"):
        called(link)
    answer = Answer(grpc.StatusCode.UNAVAILABLE, 503)
    with pytest.raises(Unavailable, match="no leader answered"):  # of a proxy whose leader may come back
        called(link, 0.0)


class PlainHttp(socketserver.BaseRequestHandler):
    """Answers as a server of HTTP/1 does to what it does not understand."""

    def handle(self) -> None:
        self.request.recv(1000)
        self.request.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n400 Bad Request")


def test_a_server_of_http_1_is_named_at_once() -> None:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), PlainHttp) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        link = LeaderClient([f"127.0.0.1:{server.server_address[1]}"])
        with pytest.raises(InvalidRequest, match="something else answers at 127") as caught:
            called(link, 60.0)
        assert "a server of HTTP that is not the leader" in caught.value.message
        link.close()
        server.shutdown()


def test_a_leader_address_learned_from_a_standby_is_tried() -> None:
    one, two = FakeLeaderService("one"), FakeLeaderService("two")
    with serving(one) as first, serving(two) as second:
        one.rejection = NotLeader("ask the other", leader=second)
        link = LeaderClient([first])
        assert called(link) == "two"
        assert called(link) == "two"
        assert one.calls == 1, "the leader is remembered"
        two.rejection, one.rejection = NotLeader("ask the other", leader=first), None
        assert called(link) == "one"


def test_a_call_that_fails_late_leaves_the_leader_that_another_one_has_found() -> None:
    standby = NotLeader("another one leads", leader="h:2")
    link = LeaderClient(["h:1", "h:3"])
    for _ in range(2):
        link._advance_from("h:1", standby)
        assert link._current_address() == "h:2"
    link._advance_from("h:1", Unreachable("h:1: connection reset"))
    assert link._current_address() == "h:2"


def test_a_dead_address_and_one_that_hangs_are_passed_over() -> None:
    hanging, leading = FakeLeaderService("hanging"), FakeLeaderService("leading")
    with serving(hanging) as first, serving(leading) as second:
        hanging.hang.clear()
        assert called(LeaderClient(["127.0.0.1:1", first, second]), timeout=6.0) == "leading"


def test_no_leader_is_found() -> None:
    follower = FakeLeaderService("follower")
    follower.rejection = NotLeader("there is no leader now")
    with serving(follower) as address, pytest.raises(Unavailable, match="no leader answered"):
        called(LeaderClient([address]), timeout=0.5)


def test_what_the_leader_refuses_is_not_tried_again() -> None:
    leader = FakeLeaderService("leader")
    leader.rejection = UnknownTopic("there is no topic x", topic="x")
    with serving(leader) as address, pytest.raises(UnknownTopic) as raised:
        called(LeaderClient([address]))
    assert raised.value.topic == "x"
    assert leader.calls == 1


def test_a_leader_of_an_earlier_version_is_named() -> None:
    """The base class of the service answers as a server that does not have the call."""
    with (
        serving(FakeLeaderService("old")) as address,
        pytest.raises(SmqError, match=f"{address}.*upgrade it") as raised,
    ):
        LeaderClient([address]).topics.SignUploads(topics_pb2.SignUploadsRequest(), timeout=HANG_GUARD)
    assert not raised.value.retry


class BrokerLikeServer(fl.FlightServerBase):
    """Offers an action as brokers do."""

    def list_actions(self, context: Any) -> list[tuple[str, str]]:
        return [("seal", "SealRequest -> SealReply")]


@pytest.mark.parametrize("watch", [False, True])
def test_a_brokers_address_is_recognised(watch: bool) -> None:
    with BrokerLikeServer("grpc://127.0.0.1:0") as server:
        link = LeaderClient([f"127.0.0.1:{server.port}"])
        with pytest.raises(InvalidRequest, match="the address of a broker, not of the leader"):
            if watch:
                next(iter(link.topics.Watch(topics_pb2.WatchRequest())))
            called(link)


def test_a_call_that_waits_says_for_what(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader_client, "REPORT_WAIT_AFTER_SECONDS", 0.0)
    leader = FakeLeaderService("leader")
    waits: list[str] = []

    def on_wait(text: str) -> None:
        waits.append(text)
        leader.hang.set()  # it answers only now

    with serving(leader) as address:
        leader.hang.clear()
        link = LeaderClient([address], on_wait=on_wait)
        assert called(link) == "leader"
        assert waits == [f"waiting for an answer of {address}"]


def test_a_leader_that_is_away_is_named_with_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader_client, "REPORT_WAIT_AFTER_SECONDS", 0.0)
    waits: set[str] = set()
    with pytest.raises(Unavailable, match=r"^no leader answered at 127\.0\.0\.1:1: connection refused$"):
        called(LeaderClient(["127.0.0.1:1"], on_wait=waits.add), timeout=2.0)
    assert "no leader at 127.0.0.1:1: connection refused; it is tried again" in waits


def test_the_leaders_reason_to_wait_is_reported_after_a_timeout() -> None:
    leader = FakeLeaderService("leader")
    leader.rejection = NoBrokers("no broker is there")
    with serving(leader) as address:
        link = LeaderClient([address])
        with pytest.raises(NoBrokers, match="no broker is there"):
            called(link, timeout=2.0)
        assert leader.calls < 40, "between two tries it waits"
        leader.last_answered = leader.calls + 1
        with pytest.raises(NoBrokers, match="no broker is there"):
            called(link, timeout=2.0)


def test_a_watch_that_a_follower_refuses_goes_to_the_leader_next_time() -> None:
    one, two = FakeLeaderService("one"), FakeLeaderService("two")
    with serving(one) as first, serving(two) as second:
        one.rejection = NotLeader("ask the other", leader=second)
        link = LeaderClient([first])
        with pytest.raises(NotLeader):
            next(iter(link.topics.Watch(topics_pb2.WatchRequest())))
        assert next(iter(link.topics.Watch(topics_pb2.WatchRequest()))).topic.name == "two"


def test_without_an_address() -> None:
    with pytest.raises(Unavailable, match="address"):
        LeaderClient([]).admin.ListTopics(admin_pb2.ListTopicsRequest())


@pytest.mark.parametrize("address", ["localhost", "localhost:", ":7070", "http://localhost", "http://localhost:7070"])
def test_what_is_not_an_address(address: str) -> None:
    import smq

    with pytest.raises(InvalidRequest, match="host:port"):
        smq.connect(address)


def test_options_for_uploads_that_cannot_be_met(monkeypatch: pytest.MonkeyPatch) -> None:
    import smq

    for name in ("SMQ_LEADER", "SMQ_VIA"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(InvalidRequest, match="auto, direct, presigned, not 'signed'"):
        smq.connect("localhost:7070", uploads="signed")  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="needs a leader"):
        smq.connect(filer_url="s3://smq", uploads="presigned")


def test_a_call_that_was_interrupted_while_it_began_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """gRPC's ``close`` waits for such a call without end."""
    monkeypatch.setattr(leader_client, "_CLOSE_SECONDS", 0.01)
    with serving(FakeLeaderService("a")) as address:
        link = LeaderClient([address])
        called(link)
        (channel,) = link._channels.values()
        hang = threading.Event()
        monkeypatch.setattr(channel, "close", hang.wait)
        closing = threading.Thread(target=link.close, daemon=True)
        closing.start()
        closing.join(HANG_GUARD / 4)
        assert not closing.is_alive()
        hang.set()
