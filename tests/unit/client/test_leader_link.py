"""Finding the leader among addresses: real gRPC servers, some of which do not lead."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from typing import Any

import grpc
import pytest

from smq.leader import ERROR_TRAILER, LeaderLink
from smq_core.errors import InvalidRequest, NoBrokers, NotLeader, SmqError, Unavailable, UnknownTopic
from smq_proto.v1 import data_pb2 as pb
from smq_proto.v1 import leader_pb2 as lpb
from smq_proto.v1 import leader_pb2_grpc
from smq_proto.wire import error_to_pb


class Service(leader_pb2_grpc.LeaderServicer):
    """Answers ListTopics and Watch, or refuses everything with ``refusal``."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.refusal: SmqError | None = None
        self.hang = threading.Event()
        self.hang.set()
        self.calls = 0

    def _refuse(self, context: Any) -> None:
        self.calls += 1
        self.hang.wait(10)
        if self.refusal is not None:
            context.set_trailing_metadata([(ERROR_TRAILER, error_to_pb(self.refusal).SerializeToString())])
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, self.refusal.message)

    def ListTopics(self, request: Any, context: Any) -> lpb.TopicList:
        self._refuse(context)
        return lpb.TopicList(topics=[lpb.TopicList.Topic(info=pb.TopicInfo(name=self.name))])

    def Watch(self, request: Any, context: Any) -> Iterator[pb.LocateReply]:
        self._refuse(context)
        yield pb.LocateReply(topic=pb.TopicInfo(name=self.name))


@contextmanager
def serving(service: Service) -> Iterator[str]:
    server = grpc.server(futures.ThreadPoolExecutor(4))
    leader_pb2_grpc.add_LeaderServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        service.hang.set()
        server.stop(0).wait()


def asked(link: LeaderLink, timeout: float = 5.0) -> str:
    return str(link.call("ListTopics", lpb.Empty(), timeout).topics[0].info.name)


def test_the_address_that_a_follower_tells_is_asked_also_when_it_was_not_given() -> None:
    one, two = Service("one"), Service("two")
    with serving(one) as first, serving(two) as second:
        one.refusal = NotLeader("ask the other", leader=second)
        link = LeaderLink([first])
        assert asked(link) == "two"
        assert asked(link) == "two"
        assert one.calls == 1, "the leader is remembered"
        two.refusal, one.refusal = NotLeader("ask the other", leader=first), None
        assert asked(link) == "one"


def test_a_dead_address_and_one_that_hangs_are_passed_over() -> None:
    hanging, leading = Service("hanging"), Service("leading")
    with serving(hanging) as first, serving(leading) as second:
        hanging.hang.clear()
        assert asked(LeaderLink(["127.0.0.1:1", first, second])) == "leading"


def test_nobody_leads() -> None:
    follower = Service("follower")
    follower.refusal = NotLeader("there is no leader now")
    with serving(follower) as address, pytest.raises(Unavailable, match="no leader answered"):
        asked(LeaderLink([address]), timeout=0.5)


def test_what_the_leader_refuses_is_not_tried_again() -> None:
    leader = Service("leader")
    leader.refusal = UnknownTopic("there is no topic x", topic="x")
    with serving(leader) as address, pytest.raises(UnknownTopic) as told:
        asked(LeaderLink([address]))
    assert told.value.topic == "x"
    assert leader.calls == 1


def test_what_the_leader_waits_for_is_told_though_the_last_try_ran_out_of_time() -> None:
    leader = Service("leader")
    leader.refusal = NoBrokers("no broker is there")
    with serving(leader) as address:
        link = LeaderLink([address])
        with pytest.raises(NoBrokers, match="no broker is there"):
            asked(link, timeout=0.5)
        assert leader.calls < 10, "between two tries it waits"
        threading.Timer(0.3, leader.hang.clear).start()
        with pytest.raises(NoBrokers, match="no broker is there"):
            asked(link, timeout=0.8)


def test_a_watch_that_a_follower_refuses_goes_to_the_leader_next_time() -> None:
    one, two = Service("one"), Service("two")
    with serving(one) as first, serving(two) as second:
        one.refusal = NotLeader("ask the other", leader=second)
        link = LeaderLink([first])
        with pytest.raises(NotLeader):
            next(iter(link.watch(pb.LocateRequest())))
        assert next(iter(link.watch(pb.LocateRequest()))).topic.name == "two"


def test_without_an_address() -> None:
    with pytest.raises(Unavailable, match="address"):
        LeaderLink([]).call("ListTopics", lpb.Empty())


@pytest.mark.parametrize("address", ["localhost", "localhost:", ":7070", "http://localhost", "http://localhost:7070"])
def test_what_is_not_an_address(address: str) -> None:
    import smq

    with pytest.raises(InvalidRequest, match="host:port"):
        smq.connect(address)
