"""What a trim removes, what it keeps, and why."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from smq_core.errors import Unavailable
from smq_core.reconcile.retention import GroupProgress
from smq_operator.cleanup import retention
from smq_operator.cleanup import trim as trim_module
from smq_operator.cleanup.retention import read_consistent
from smq_operator.cleanup.trim import Trim, TrimRequest, trim_topic
from smq_proto.v1 import admin_pb2
from smq_storage.catalog import paths, sealed_index
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import Store, open_store
from support import virtual_time
from support.data.clocks import leader_at
from support.data.sealed_topic import HOLDER, make_topic, segment_name
from support.in_memory.brokers import FakeFleet
from support.in_memory.leader import FakePlatform, LeaderInMemory, RpcAborted, count_of, running_leader
from support.waiting import wait_until

SECOND = 1_000_000
RETRY_POLICY = RetryPolicy(2.0)
STARTED = {(HOLDER.incarnation, segment_name(4))}


@pytest.fixture
def store() -> Store:
    return open_store("memory://")


def trim(
    store: Store,
    topic: Any,
    request: TrimRequest,
    groups: tuple[GroupProgress, ...] = (),
    held: bool = False,
) -> Trim:
    clocks = leader_at(100 * SECOND)
    known = read_consistent(store, topic)
    return trim_topic(store, topic, request, known, groups, STARTED, clocks, RETRY_POLICY, lambda *_: held)


def names(done: Trim) -> list[str]:
    return [removal.segment.name for removal in done.removals]


def removed(store: Store) -> list[str]:
    return [segment.name for segment in sealed_index.load(store, "default/t", "uid-1").removed_segments]


def test_segments_that_were_sealed_before_the_time_go_and_the_others_are_named(store: Store) -> None:
    topic = make_topic(store, 4, retention_age=None)  # sealed at 1, 2, 3 and 4 s
    planned = trim(store, topic, TrimRequest(3 * SECOND, preview=True))
    assert names(planned) == [segment_name(0), segment_name(1)] and removed(store) == []

    done = trim(store, topic, TrimRequest(3 * SECOND))

    assert names(done) == removed(store) == [segment_name(0), segment_name(1)]
    assert not done.more and done.removals[0].because == "trimmed: sealed before 1970-01-01T00:00:03Z"
    assert done.kept == planned.kept
    assert done.kept[segment_name(2)] == "sealed at 1970-01-01T00:00:03Z, so it also has later messages"
    assert done.kept[segment_name(4)] == "open: only sealed segments are removed"
    assert names(trim(store, topic, TrimRequest(3 * SECOND))) == [], "it can be repeated"


def test_the_size_that_a_topic_may_have_is_no_matter_of_a_trim(store: Store) -> None:
    topic = make_topic(store, 4, retention_age=None, retention_bytes=1)
    assert names(trim(store, topic, TrimRequest(3 * SECOND))) == [segment_name(0), segment_name(1)]


def test_a_trim_of_many_segments_is_to_be_repeated(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (retention, trim_module):
        monkeypatch.setattr(module, "MAX_SEGMENTS_PER_PASS", 1)
    topic = make_topic(store, 4, retention_age=None)
    done = [trim(store, topic, TrimRequest(3 * SECOND)) for _ in range(3)]
    assert [names(it) for it in done] == [[segment_name(0)], [segment_name(1)], []]
    assert [it.more for it in done] == [True, True, False]


def test_what_a_group_has_not_read_stays_unless_it_may_be_skipped(store: Store) -> None:
    topic = make_topic(store, 4, retention_age=None)
    groups = (GroupProgress("g", {segment_name(0): 15, segment_name(1): 7}),)
    done = trim(store, topic, TrimRequest(3 * SECOND), groups)
    assert names(done) == [segment_name(0)] and done.kept[segment_name(1)] == "not read to its end by g"

    done = trim(store, topic, TrimRequest(3 * SECOND, skip_unread=True), groups)
    assert names(done) == [segment_name(1)] and done.removals[0].unread == {"g": 7}


def test_an_unfinished_publish_removes_nothing_and_is_an_error(store: Store) -> None:
    topic = make_topic(store, 4, retention_age=None)
    with pytest.raises(Unavailable, match="an atomic publish is unfinished"):
        trim(store, topic, TrimRequest(3 * SECOND), held=True)
    assert removed(store) == []


def test_an_index_that_is_behind_the_layout_is_an_error(store: Store) -> None:
    topic = make_topic(store, 4, retention_age=None)
    store.put(paths.index_page(topic.name, topic.uid, 0), b'{"entries": []}')
    with pytest.raises(Unavailable, match="are changing right now"):
        trim(store, topic, TrimRequest(3 * SECOND))


@virtual_time.virtual_time
async def test_the_leader_plans_a_trim_and_refuses_the_future() -> None:
    store = open_store("memory://")
    fleet, platform = FakeFleet(store), FakePlatform()
    for number in range(2):
        fleet.add(f"b{number}")
    platform.add_topic("default/t", retention_age=None)
    leader = LeaderInMemory(platform, fleet, store)
    async with running_leader(leader):
        await wait_until(lambda: bool(leader.topics.get("default/t") and leader.topics["default/t"].readable_ends()))
        managed = leader.topics["default/t"]
        assert managed.layout is not None
        (first,) = managed.layout.segments
        fleet.write(managed.layout.uid, first, 30)
        await leader.call(
            "ChangeSegments", admin_pb2.ChangeSegmentsRequest(topic="t", action="ROLL", segments=[first.name])
        )
        await wait_until(lambda: count_of(managed) == 30 and first.name in managed.index.sealed, what="the roll")
        (successor,) = managed.layout.segments
        fleet.write(managed.layout.uid, successor, 1)  # which has read the seal of its predecessor then
        await wait_until(lambda: count_of(managed) == 31, what="the report")

        with pytest.raises(RpcAborted, match="a time that has passed"):
            await leader.call(
                "TrimTopic", admin_pb2.TrimTopicRequest(topic="t", before=virtual_time.now() + 61 * SECOND)
            )
        # Only a preview: what is removed depends on the age of the chunk in the store, which has no virtual time.
        request = admin_pb2.TrimTopicRequest(
            topic="t", before=managed.index.sealed[first.name].sealed_at + 1, preview=True
        )
        reply = await leader.call("TrimTopic", request)
        assert isinstance(reply, admin_pb2.TrimTopicReply)
        assert [(it.segment, it.messages) for it in reply.removed] == [(first.name, 30)]
        assert count_of(managed) == 31

        # A client whose clock is ahead says "now", and stops waiting. What the filer has lost, the leader has too.
        request = admin_pb2.TrimTopicRequest(topic="t", before=virtual_time.now() + SECOND)
        waiting = asyncio.ensure_future(leader.call("TrimTopic", request))
        await asyncio.sleep(0)
        waiting.cancel()
        await wait_until(lambda: count_of(managed) == 1, what="the removal")
