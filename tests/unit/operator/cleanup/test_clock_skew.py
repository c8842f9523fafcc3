"""One wrong clock deletes nothing early: the leader's, the filer's, or that of the leader that wrote a document."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from smq_core.model.entities import TopicSpec
from smq_core.reconcile.retention import GroupProgress
from smq_operator.cleanup import retention
from smq_operator.cleanup.deleted_topics import LiveTopics, collect_deleted_topics
from smq_operator.cleanup.document_scan import DocumentScan
from smq_operator.cleanup.filer_clock import MEASURE_INTERVAL_US, ClockReading, FilerClock
from smq_operator.cleanup.retention import read_consistent, remove_expired
from smq_operator.reconcile.topics.adoption import record_deletion
from smq_operator.runtime.store_pool import StorePool
from smq_operator.status.topic_conditions import Commands, topic_conditions
from smq_operator.status.topic_snapshot import TopicSnapshot
from smq_storage.catalog import paths, sealed_index
from smq_storage.catalog.deleted_topics import read_deleted_topic
from smq_storage.catalog.filer_time import read_filer_time
from smq_storage.catalog.group_positions import CommittedPositions, put_positions
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.results import ObjectInfo, ObjectTail
from smq_storage.object_store.store import Store, open_store
from support.data.clocks import FAR, leader_at
from support.data.sealed_topic import HOLDER, make_topic, segment_name, segments_with_files
from support.virtual_time import virtual_time

RETRY_POLICY = RetryPolicy(2.0)
SECOND, DAY = 1_000_000, 86_400_000_000
YEAR = 365 * DAY
NOBODY = LiveTopics((), (), (), complete=True)
STARTED = {(HOLDER.incarnation, segment_name(3))}


@pytest.fixture
def store() -> Store:
    return open_store("memory://")


def filer_now() -> int:
    """The time of the store in memory."""
    return time.time_ns() // 1000


def removed(store: Store) -> list[str]:
    return [segment.name for segment in sealed_index.load(store, "default/t", "uid-1").removed_segments]


def test_retention_removes_nothing_whose_seal_chunk_the_filer_does_not_return(store: Store):
    """Its answer may be out of date. Then only the leader's clock would speak for the removal."""
    topic = make_topic(store, 3, retention_age=DAY)
    clocks = ClockReading(leader=4 * SECOND + YEAR, filer=filer_now())
    for entry in sealed_index.read(store, "default/t", "uid-1"):
        store.delete(paths.chunk("default/t", "uid-1", entry.name, entry.end))
    assert remove_expired(store, topic, read_consistent(store, topic), [], STARTED, clocks, RETRY_POLICY).removals == []


@pytest.mark.parametrize("who", ["the leader's is ahead", "the sealing leader's was behind"])
def test_retention_removes_nothing_if_only_the_leader_s_clock_says_that_it_is_old(store: Store, who: str):
    topic = make_topic(store, 3, retention_age=DAY)  # sealed at 1, 2, 3 seconds, and written now
    clocks = ClockReading(leader=4 * SECOND + YEAR, filer=filer_now())
    assert remove_expired(store, topic, read_consistent(store, topic), [], STARTED, clocks, RETRY_POLICY).removals == []
    assert removed(store) == []


def test_retention_removes_nothing_if_only_the_filer_s_clock_says_that_it_is_old(store: Store):
    topic = make_topic(store, 3, retention_age=DAY)
    remove_expired(
        store,
        topic,
        read_consistent(store, topic),
        [],
        STARTED,
        ClockReading(leader=4 * SECOND, filer=FAR),
        RETRY_POLICY,
    )
    assert removed(store) == []


def test_retention_removes_what_both_clocks_call_old(store: Store):
    topic = make_topic(store, 3, retention_age=DAY)
    remove_expired(
        store,
        topic,
        read_consistent(store, topic),
        [],
        STARTED,
        ClockReading(leader=DAY + 3 * SECOND, filer=filer_now() + DAY + SECOND),
        RETRY_POLICY,
    )
    assert removed(store) == [segment_name(0), segment_name(1)], "the last one is a day old, not more"


def test_retention_by_bytes_does_not_depend_on_clocks(store: Store):
    topic = make_topic(store, 3, retention_age=DAY, retention_bytes=0)
    remove_expired(
        store, topic, read_consistent(store, topic), [], STARTED, ClockReading(leader=-YEAR, filer=-YEAR), RETRY_POLICY
    )
    assert len(removed(store)) == 3


def test_retention_reads_the_times_of_the_segments_of_one_pass_only(store: Store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(retention, "MAX_SEGMENTS_PER_PASS", 1)
    topic, heads = make_topic(store, 3, retention_age=DAY), []
    head = Store.head

    def counted_head(self: Store, path: str) -> ObjectInfo:
        heads.append(path)
        return head(self, path)

    monkeypatch.setattr(Store, "head", counted_head)
    for number in range(3):
        remove_expired(store, topic, read_consistent(store, topic), [], STARTED, leader_at(YEAR), RETRY_POLICY)
        assert len(removed(store)) == len(heads) == number + 1


@pytest.mark.parametrize("filer_agrees", [False, True])
def test_a_group_is_abandoned_only_if_both_clocks_say_so(store: Store, filer_agrees: bool):
    topic = make_topic(store, 1, retention_age=DAY, retention_abandoned_after=2 * DAY)
    put_positions(store, topic.name, topic.uid, "g", CommittedPositions(generation=1, positions={}, writer="w"), None)
    group = GroupProgress("g", {}, last_active_at=1)
    started = {(HOLDER.incarnation, segment_name(1))}
    # The segment is older than a day for both. Whether the group is idle for two days is the question.
    clocks = ClockReading(leader=YEAR, filer=filer_now() + (3 * DAY if filer_agrees else DAY + SECOND))
    plan = remove_expired(store, topic, read_consistent(store, topic), [group], started, clocks, RETRY_POLICY)
    assert bool(plan.removals) is filer_agrees and bool(plan.retained) is not filer_agrees


@pytest.mark.parametrize(
    ("clocks", "deleted"),
    [
        (ClockReading(leader=YEAR, filer=filer_now()), False),
        (ClockReading(leader=150, filer=FAR), False),
        (ClockReading(leader=YEAR, filer=filer_now() + DAY), True),
    ],
)
def test_a_deleted_topic_can_be_restored_for_its_whole_grace(store: Store, clocks: ClockReading, deleted: bool):
    topic = make_topic(store, 1, delete_data=True)
    record_deletion(store, topic.name, topic.uid, RETRY_POLICY, 100)
    record = read_deleted_topic(store, topic.uid)
    assert record is not None and record.delete_data
    collect_deleted_topics(store, NOBODY, 600 * SECOND, clocks, RETRY_POLICY, set(), DocumentScan())
    assert bool(segments_with_files(store, topic)) is not deleted


def test_the_filer_s_time_is_that_of_an_object_written_now(store: Store):
    before = filer_now()
    for _ in range(2):
        assert before - SECOND <= read_filer_time(store) <= filer_now()
    assert store.head(paths.CLOCK).size > 0


class StoreWithClock:
    """A store whose time is set by the test."""

    def __init__(self, store: Store, now: int) -> None:
        self._store, self.now, self.answers = store, now, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def get_tail(self, path: str, nbytes: int) -> ObjectTail:
        self.answers += 1
        return self._store.get_tail(path, nbytes)._replace(modified=datetime.fromtimestamp(self.now / 1e6, UTC))


@virtual_time
async def test_both_clocks_advance_alike_between_two_measurements():
    store, at = StoreWithClock(open_store("memory://"), 50 * SECOND), [1000 * SECOND]
    clock = FilerClock(StorePool(store, None), lambda: at[0])  # type: ignore[arg-type]
    assert clock.skew_us is None
    assert await clock.read() == ClockReading(
        leader=1000 * SECOND, filer=50 * SECOND, measured_at=1000 * SECOND, answers_since=50 * SECOND
    )
    assert clock.skew_us == 950 * SECOND
    at[0] += SECOND
    store.now += YEAR  # the filer's clock jumps
    assert await clock.read() == ClockReading(
        leader=1001 * SECOND, filer=51 * SECOND, measured_at=1000 * SECOND, answers_since=50 * SECOND
    )
    assert store.answers == 1
    at[0] += MEASURE_INTERVAL_US
    assert (await clock.read()).filer == store.now
    assert store.answers == 2
    assert (await clock.read()).earliest == at[0], "the leader's clock is not affected"
    await asyncio.sleep(0)


def test_a_topic_with_retention_by_age_says_that_the_clocks_differ():
    def condition(minutes: int, **spec: Any) -> tuple[str, str, str]:
        snapshot = TopicSnapshot(name="default/t", spec=TopicSpec(**spec), clock_skew_minutes=minutes)
        found = retention_blocked(snapshot)
        return found.status, found.reason, found.message

    assert condition(0, retention_age=DAY)[:2] == ("False", "NotBlocked")
    assert condition(600, retention_age=None)[:2] == ("False", "NotBlocked"), "nothing expires by age"
    ahead, behind = condition(600, retention_age=DAY), condition(-2, retention_age=DAY)
    assert ahead[:2] == behind[:2] == ("True", "ClockSkew")
    assert "600 minutes ahead of the filer's" in ahead[2] and "2 minutes behind the filer's" in behind[2]
    assert "restart the operator" in ahead[2]


def retention_blocked(snapshot: TopicSnapshot) -> Any:
    commands = Commands("restore", lambda namespace, segment: "accept", lambda namespace, topic: "resume")
    return next(c for c in topic_conditions(snapshot, commands) if c.type == "RetentionBlocked")


def test_an_answer_that_is_out_of_date_is_not_the_filer_s_time() -> None:
    """It may be as old as the last time that any leader has asked."""

    class StaleOnce:
        def __init__(self, store: Store) -> None:
            self.store, self.before = store, store.get_tail(paths.CLOCK, 100)
            self.puts = 0

        def put(self, path: str, data: bytes) -> str:
            self.puts += 1
            return self.store.put(path, data)

        def get_tail(self, path: str, nbytes: int) -> ObjectTail:
            found, self.before = self.before, None
            return found or self.store.get_tail(path, nbytes)

    store = open_store("memory://")
    read_filer_time(store)
    stale = StaleOnce(store)
    read_filer_time(stale)  # type: ignore[arg-type]
    assert stale.puts == 2, "the first answer is not what was written"
