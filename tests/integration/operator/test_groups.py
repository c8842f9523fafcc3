"""Consumer groups at a real leader: who reads what, and what is remembered."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from smq_core.errors import InvalidRequest, StaleGeneration
from smq_proto.v1 import admin_pb2, groups_pb2
from smq_storage.catalog.group_positions import read_positions
from support.data.segment_writer import write
from support.processes.leader import LeaderProcess, manifest
from support.processes.seaweed import Seaweed
from support.waiting import eventually

pytestmark = pytest.mark.integration

_numbers = itertools.count()


@pytest.fixture(scope="module")
def leader(tmp_path_factory: pytest.TempPathFactory, seaweed: Seaweed) -> Iterator[LeaderProcess]:
    """One for all tests of this file, with brokers that no test kills; each test has its own topic."""
    folder = tmp_path_factory.mktemp("groups")
    started = LeaderProcess(folder, seaweed.settings(f"groups-{folder.name}"), brokers=2).start()
    try:
        started.wait_for_brokers()
        yield started
    finally:
        started.stop()


@pytest.fixture
def topic() -> str:
    return f"t{next(_numbers)}"


class RpcMember:
    """One member of group g on a topic, that keeps to the protocol."""

    def __init__(self, leader: LeaderProcess, topic: str, name: str, start: str = "EARLIEST") -> None:
        self.leader, self.topic, self.name, self.start = leader, topic, name, start
        self.generation, self.epoch = 0, ""
        self.segments: dict[str, int] = {}

    def join(self) -> dict[str, int]:
        request = groups_pb2.JoinGroupRequest(
            topic=self.topic, group="g", member=self.name, start=self.start, generation=self.generation
        )
        reply = self.leader.call("JoinGroup", request)
        assert isinstance(reply, groups_pb2.GroupAssignment)
        assert reply.heartbeat_ms > 0
        self.epoch = reply.epoch
        self.name, self.generation, self.segments = reply.member, reply.generation, dict(reply.positions)
        return self.segments

    def commit(self, **positions: int) -> None:
        request = groups_pb2.CommitPositionsRequest(
            topic=self.topic,
            group="g",
            member=self.name,
            generation=self.generation,
            positions=positions,
            epoch=self.epoch,
        )
        self.leader.call("CommitPositions", request)

    def leave(self) -> None:
        self.leader.call("LeaveGroup", groups_pb2.LeaveGroupRequest(topic=self.topic, group="g", member=self.name))


def committed(leader: LeaderProcess, topic: str) -> dict[str, int]:
    reply = leader.call("GetPositions", groups_pb2.GetPositionsRequest(topic=topic, group="g"))
    assert isinstance(reply, groups_pb2.GroupPositions)
    return dict(reply.positions)


@pytest.fixture
def two_segments(leader: LeaderProcess, topic: str) -> LeaderProcess:
    """The topic has two segments, each with 100 messages."""
    leader.apply(manifest(topic, segments={"min": 2, "max": 8}))
    for segment in leader.wait_until_open(topic):
        write(leader.locate(topic), segment, 100, name=segment.name).close()
    return leader


def test_members_share_the_segments(two_segments: LeaderProcess, topic: str):
    a, b = RpcMember(two_segments, topic, ""), RpcMember(two_segments, topic, "b")
    assert len(a.join()) == 2
    assert a.name.startswith("g-"), "a member without a name is given one"
    assert b.join() == {}
    assert len(a.join()) == 1, "one is to go, and a does not read it any more"
    a.join()
    assert len(b.join()) == 1
    assert not a.segments.keys() & b.segments.keys()
    b.leave()
    assert len(eventually(lambda: len(a.join()) == 2 and a.segments)) == 2


def test_what_was_committed_is_in_the_filer_and_survives_the_leader(two_segments: LeaderProcess, topic: str):
    (one, other) = sorted(RpcMember(two_segments, topic, "a").join())
    a = RpcMember(two_segments, topic, "a")
    a.join()
    a.commit(**{one: 7})
    uid = two_segments.locate(topic).topic.uid
    found, _ = read_positions(two_segments.store.open(), f"default/{topic}", uid, "g")
    assert found.positions == {one: 7}, "it is there before the answer is"
    two_segments.kill()
    two_segments.start()
    assert committed(two_segments, topic) == {one: 7}
    with pytest.raises(StaleGeneration):
        a.commit(**{one: 9})
    assert eventually(a.join)[one] == 7
    assert a.segments[other] == 0
    a.commit(**{one: 9})


def test_successors_come_when_all_before_them_is_committed(leader: LeaderProcess, topic: str):
    leader.apply(manifest(topic))
    (segment,) = leader.wait_until_open(topic)
    producer = write(leader.locate(topic), segment, 10)
    a = RpcMember(leader, topic, "a")
    assert a.join() == {segment.name: 0}
    leader.call("ChangeSegments", admin_pb2.ChangeSegmentsRequest(topic=topic, action="SPLIT", segments=[segment.name]))
    eventually(lambda: len(leader.wait_until_open(topic)) == 2)
    assert a.join() == {segment.name: 0}
    a.commit(**{segment.name: 9})
    assert a.join() == {segment.name: 9}
    a.commit(**{segment.name: 10})
    assert len(a.join()) == 2 and segment.name not in a.segments
    producer.close()


@pytest.mark.slow
def test_a_group_that_starts_at_the_latest_skips_what_is_there(leader: LeaderProcess, topic: str):
    leader.apply(manifest(topic))
    (segment,) = leader.wait_until_open(topic)
    write(leader.locate(topic), segment, 10).close()
    assert RpcMember(leader, topic, "a", start="LATEST").join() == {segment.name: 10}
    leader.kill()
    leader.start()
    late = RpcMember(leader, topic, "b", start="EARLIEST")
    assert eventually(late.join) == {segment.name: 10}, "where a group began is remembered"


def test_many_commits_at_once_share_their_writes(two_segments: LeaderProcess, topic: str):
    a = RpcMember(two_segments, topic, "a")
    (one, _) = sorted(a.join())
    with ThreadPoolExecutor(20) as pool:
        list(pool.map(lambda offset: a.commit(**{one: offset}), range(1, 101)))
    assert committed(two_segments, topic)[one] == 100


@pytest.mark.slow
def test_an_unresponsive_member_is_replaced(two_segments: LeaderProcess, topic: str):
    a, b = RpcMember(two_segments, topic, "a"), RpcMember(two_segments, topic, "b")
    a.join()

    def all_with_b() -> bool:
        return len(b.join()) == 2

    eventually(all_with_b, what="a has timed out, and b has all segments")
    with pytest.raises(StaleGeneration):
        a.commit(**dict.fromkeys(b.segments, 1))


def test_a_position_that_nobody_can_have_is_refused(two_segments: LeaderProcess, topic: str):
    a = RpcMember(two_segments, topic, "a")
    (one, _) = sorted(a.join())
    with pytest.raises(InvalidRequest, match=f"{one} has no offset 101"):
        a.commit(**{one: 101})
    assert committed(two_segments, topic) == {}
    a.leave()
    change = groups_pb2.SetPositionsRequest(topic=topic, group="g", positions={one: 101})
    with pytest.raises(InvalidRequest, match=f"{one} has no offset 101"):
        two_segments.call("SetPositions", change)


def test_groups_are_listed(two_segments: LeaderProcess, topic: str):
    a = RpcMember(two_segments, topic, "a")
    (one, _) = sorted(a.join())
    a.commit(**{one: 3})
    reply = two_segments.call("ListGroups", groups_pb2.ListGroupsRequest(topic=topic))
    assert isinstance(reply, groups_pb2.GroupList)
    (group,) = reply.groups
    assert (group.name, list(group.members), dict(group.positions)) == ("g", ["a"], {one: 3})
