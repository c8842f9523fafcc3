"""How many messages a topic holds, as the leader knows it."""

from __future__ import annotations

import copy
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from smq_core.model.chunk_info import SealOutcome
from smq_core.model.entities import SealedSegment, Segment
from smq_operator.reconcile.topics.managed_topic import ManagedTopic
from smq_proto.v1 import admin_pb2
from smq_storage.object_store.store import open_store
from support.in_memory.brokers import FakeFleet
from support.in_memory.leader import FakePlatform, LeaderInMemory, count_of, running_leader
from support.virtual_time import virtual_time
from support.waiting import wait_until


async def listed(leader: LeaderInMemory) -> admin_pb2.TopicList.Topic:
    reply = await leader.call("ListTopics", admin_pb2.ListTopicsRequest())
    assert isinstance(reply, admin_pb2.TopicList)
    return reply.topics[0]


@virtual_time
async def test_sealed_and_living_segments_are_counted_and_unknown_is_not_zero() -> None:
    store = open_store("memory://")
    fleet, platform = FakeFleet(store), FakePlatform()
    for number in range(2):
        fleet.add(f"b{number}")
    platform.add_topic("default/t", min_segments=2)
    first, second = LeaderInMemory(platform, fleet, store), LeaderInMemory(platform, fleet, store)

    async with running_leader(first):
        await wait_until(lambda: _all_reported(first, 2), what="two open segments")
        assert (await listed(first)).messages == 0
        layout = first.topics["default/t"].layout
        assert layout is not None
        left, right = layout.segments
        fleet.write(layout.uid, left, 30)
        fleet.write(layout.uid, right, 4)
        await wait_until(lambda: count_of(first.topics["default/t"]) == 34, what="the reports")
        assert (await listed(first)).ends == {left.name: 30, right.name: 4}
        _check_a_sealed_segment_in_the_layout(first.topics["default/t"], left)

        await first.call(
            "ChangeSegments", admin_pb2.ChangeSegmentsRequest(topic="t", action="ROLL", segments=[left.name])
        )
        await wait_until(lambda: left.name in first.topics["default/t"].index.sealed, what="the seal")
        await wait_until(lambda: count_of(first.topics["default/t"]) == 34, what="the successor's report")
        assert left.name not in (await listed(first)).ends

    second.reports_paused = True
    async with running_leader(second):
        await wait_until(
            lambda: second.topics.get("default/t") is not None and second.topics["default/t"].index.is_read
        )
        assert not (await listed(second)).HasField("messages"), "no broker has reported yet"
        second.reports_paused = False
        await wait_until(lambda: count_of(second.topics["default/t"]) == 34, what="the reports")


def _all_reported(leader: LeaderInMemory, segments: int) -> bool:
    managed = leader.topics.get("default/t")
    return managed is not None and len(managed.readable_ends()) == segments


@virtual_time
async def test_a_topic_that_takes_the_place_of_another_one_has_none_of_its_messages() -> None:
    store = open_store("memory://")
    fleet, platform = FakeFleet(store), FakePlatform()
    for number in range(2):
        fleet.add(f"b{number}")
    platform.add_topic("default/t", max_segments=1)
    leader = LeaderInMemory(platform, fleet, store)
    async with running_leader(leader):
        await wait_until(lambda: _all_reported(leader, 1), what="an open segment")
        managed = leader.topics["default/t"]
        assert managed.layout is not None
        (first,) = managed.layout.segments
        fleet.write(managed.layout.uid, first, 30)
        await leader.call(
            "ChangeSegments", admin_pb2.ChangeSegmentsRequest(topic="t", action="ROLL", segments=[first.name])
        )
        await wait_until(lambda: count_of(managed) == 30 and first.name in managed.index.sealed, what="the roll")

        platform.topics["default/t"] = replace(platform.topics["default/t"], uid="another")
        await wait_until(lambda: managed.topic is not None and managed.topic.uid == "another", what="the other topic")
        await wait_until(lambda: count_of(managed) is not None, what="its count")
        assert count_of(managed) == 0


def _check_a_sealed_segment_in_the_layout(managed: ManagedTopic, segment: Segment) -> None:
    """It is counted once, to the end that its seal chunk says: what was acked after it is lost."""
    seen = copy.copy(managed)
    assert seen.reconciler is not None
    outcome = SealOutcome(segment=segment.name, end=25)
    reconciler: Any = SimpleNamespace(
        layout=seen.layout,
        watermarks=seen.reconciler.watermarks,
        outcome=lambda name: outcome if name == segment.name else None,
    )
    seen.reconciler = reconciler
    assert seen.readable_ends()[segment.name] == 25 and count_of(seen) == 29
    seen.index.sealed, seen.index.changes = {segment.name: sealed(segment, outcome)}, seen.index.changes + 1
    assert count_of(seen) == 29


def sealed(segment: Segment, outcome: SealOutcome) -> SealedSegment:
    number, because = segment.number, segment.opened_because
    return SealedSegment(
        name=segment.name,
        number=number,
        range=segment.range,
        end=outcome.end,
        predecessors=(),
        successors=(),
        opened_because=because,
        sealed_because=because,
        opened_at=0,
        sealed_at=1,
    )
