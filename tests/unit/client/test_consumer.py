"""The consumer over fetchers that the test plays: what it reads, what it withholds, what it commits and gives up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

import smq.consumer
from smq.consumer import Consumer
from smq.consuming import consumer_monitor, group_membership, open_fetchers
from smq.consuming.fetcher import FetchPlan
from smq.consuming.prefetch_buffer import FetchedLoss, FetchedRows, FetchFailed, PrefetchBuffer, SegmentEnd
from smq.consuming.segment_choice import ALL_SEGMENTS, SegmentChoice
from smq_core.errors import (
    CorruptChunk,
    DataLost,
    InvalidRequest,
    StaleGeneration,
    StoreUnavailable,
    Unavailable,
    UnknownTopic,
)
from smq_core.model.entities import Segment
from smq_proto.v1 import leader_pb2 as lpb
from support.in_memory.topic import PARTITIONS, GroupInMemory, TopicInMemory, rows_of
from support.waiting import eventually


class FakeFetcher:
    """Puts what the test gives it into the consumer's buffer, until it is stopped."""

    def __init__(self, plan: FetchPlan, buffer: PrefetchBuffer[Any]) -> None:
        self.segment = plan.segment
        self.plan = plan
        self.alive = True
        self.watermark = 0
        self.watermark_known = False
        self.filer_error: StoreUnavailable | None = None
        self._buffer = buffer
        buffer.open(self)

    def rows(self, first: int, count: int) -> bool:
        """False: the consumer no longer reads this."""
        return self._buffer.put(self, FetchedRows(rows_of(count), first, count))

    def put(self, item: SegmentEnd | FetchedLoss | FetchFailed) -> bool:
        return self._buffer.put(self, item)

    def stop(self) -> None:
        self.alive = False
        self._buffer.drop(self)

    def may_end(self) -> bool:
        return False

    def check_liveness(self, now: float, late_by: float = 0.0) -> None: ...

    def join(self, timeout: float) -> None: ...


class FakeSearch:
    """Finds the positions that the test gives the bench; refuses offsets of 100 and more."""

    def __init__(self, bench: Bench, choice: SegmentChoice) -> None:
        self._bench, self._choice = bench, choice

    def __enter__(self) -> FakeSearch:
        return self

    def __exit__(self, *_: object) -> None: ...

    def check(self, positions: Mapping[str, int]) -> None:
        if any(offset >= 100 for offset in positions.values()):
            raise InvalidRequest("0 to 99 are possible")

    def resolve(self, to: object) -> dict[str, int]:
        self._bench.searches += 1
        return {name: offset for name, offset in self._bench.found.items() if self._choice.has(name)}

    def offset_at(self, segment: str, at: int) -> int:
        return self._bench.found[segment]


class Bench:
    found: Mapping[str, int] = {}
    """Where a search for a time ends."""
    searches = 0

    def __init__(self) -> None:
        self.topic = TopicInMemory()
        self.first = self.topic.first
        self.leader = GroupInMemory({self.first.name: 0})
        self.fetchers: list[FakeFetcher] = []
        self.consumers: list[Consumer] = []
        self.applied = 0
        """How many assignments were applied."""

    def make_fetcher(self, view: object, buffer: PrefetchBuffer[Any], plan: FetchPlan, *_: object) -> FakeFetcher:
        self.fetchers.append(FakeFetcher(plan, buffer))
        return self.fetchers[-1]

    def search(self, view: object, choice: SegmentChoice = ALL_SEGMENTS) -> FakeSearch:
        return FakeSearch(self, choice)

    def open(self, group: str | None = None, **options: Any) -> Consumer:
        settings = {"start": "earliest", "on_loss": "fail", "schema": "newest", "auto_commit": False, "max_bytes": 1000}
        settings |= {"large_values": "eager"}
        view: Any = self.topic
        leader: Any = self.leader
        made = Consumer(view, leader, group=group, prefetch_bytes=1 << 20, **(settings | options))
        self.consumers.append(made)
        if group is not None:
            # It has acknowledged its first assignment, and does nothing by itself from now on.
            eventually(lambda: self.leader.acknowledged() == 1 and self.applied >= 2)
            if not self.leader.failures.get("GetPositions"):
                eventually(lambda: made._losses_received)
        return made

    def assign(self, consumer: Consumer, positions: dict[str, int]) -> None:
        """A new assignment, which the consumer has applied when this returns."""
        self.leader.assign(positions)
        self.heartbeat(consumer)

    def heartbeat(self, consumer: Consumer) -> None:
        assert consumer._membership is not None
        consumer._membership._heartbeat()

    def heartbeat_at_once(self, consumer: Consumer) -> None:
        """From now on a heartbeat that the member wants is sent before anything else happens."""
        assert consumer._membership is not None
        consumer._membership.heartbeat_now = lambda: self.heartbeat(consumer)  # type: ignore[method-assign]

    def order(self) -> list[str]:
        """The commits, and the heartbeats that gave up the first generation, in their order."""
        return [
            method
            for method, request in self.leader.calls
            if method == "CommitPositions" or (method == "JoinGroup" and request.generation == 2)
        ]

    def plans(self) -> list[tuple[str, int]]:
        """What was ever read: segments, and from which positions."""
        return [(f.segment, f.plan.position) for f in self.fetchers]

    def child(self, number: int, start: int, stop: int, *predecessors: Segment) -> Segment:
        return self.topic.segment(number, start, stop, tuple(p.name for p in predecessors))


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    made = Bench()
    apply = Consumer._on_assignment

    def counted(consumer: Consumer, positions: dict[str, int]) -> bool:
        working = apply(consumer, positions)
        made.applied += 1
        return working

    monkeypatch.setattr(Consumer, "_on_assignment", counted)
    monkeypatch.setattr(open_fetchers, "Fetcher", made.make_fetcher)
    monkeypatch.setattr(smq.consumer, "PositionSearch", made.search)
    monkeypatch.setattr(consumer_monitor, "MONITOR_INTERVAL_SECONDS", 0.002)
    monkeypatch.setattr(consumer_monitor, "RETRY_AFTER_SECONDS", 0.002)
    monkeypatch.setattr(group_membership, "RETRY_AFTER_SECONDS", 0.001)
    yield made
    for consumer in made.consumers:
        consumer.close()


def offsets(consumer: Consumer) -> tuple[int, int] | None:
    """The offsets of the batch that is there, or None."""
    batch = consumer.poll(0)
    return None if batch is None else (batch.first_offset, batch.next_offset)


def refreshed(consumer: Consumer, *segments: Segment) -> None:
    """Waits until the consumer knows these segments, and has started to read what may be read."""
    eventually(lambda: all(s.name in consumer._reader.nodes for s in segments) and not consumer._history.due)
    consumer._fetch_readable()


# ---- the filer


def test_a_consumer_has_the_error_of_a_filer_that_its_segments_wait_for(bench: Bench) -> None:
    consumer = bench.open()
    assert consumer.filer_error is None
    bench.fetchers[0].filer_error = StoreUnavailable("away")
    assert consumer.filer_error is bench.fetchers[0].filer_error
    bench.fetchers[0].filer_error = None
    assert consumer.filer_error is None


def test_a_consumer_has_the_error_of_a_filer_that_its_history_waits_for(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = bench.open()
    history, away = bench.topic.sealed_history, StoreUnavailable("away")

    def fail() -> Any:
        raise away

    monkeypatch.setattr(bench.topic, "sealed_history", fail)
    bench.topic.set_layout([bench.first])
    eventually(lambda: consumer.filer_error is away)
    monkeypatch.setattr(bench.topic, "sealed_history", history)
    eventually(lambda: consumer.filer_error is None)


# ---- without a group


def test_successors_are_withheld_until_their_predecessor_is_read_to_its_end(bench: Bench) -> None:
    consumer = bench.open()
    (fetcher,) = bench.fetchers
    low, high = bench.child(1, 0, 4, bench.first), bench.child(2, 4, PARTITIONS, bench.first)
    bench.topic.seal(bench.first, 3, low, high)
    refreshed(consumer, low, high)

    fetcher.rows(0, 2)
    assert offsets(consumer) == (0, 2)
    refreshed(consumer, low, high)
    assert consumer.assignment == {bench.first.name} and len(bench.fetchers) == 1, "one message is missing"

    fetcher.rows(2, 1)
    fetcher.put(SegmentEnd(3))
    assert offsets(consumer) == (2, 3)
    assert offsets(consumer) is None
    assert consumer.assignment == {low.name, high.name}
    assert bench.plans()[1:] == [(low.name, 0), (high.name, 0)]
    assert not fetcher.alive


def test_the_successor_of_a_merge_waits_for_both(bench: Bench) -> None:
    one, two = bench.topic.segment(1, 0, 4), bench.topic.segment(2, 4, PARTITIONS)
    bench.topic.set_layout([one, two])
    consumer = bench.open()
    merged = bench.child(3, 0, PARTITIONS, one, two)
    bench.topic.seal(one, 1)
    bench.topic.seal(two, 1, merged)
    refreshed(consumer, merged)
    first, second = bench.fetchers

    for fetcher in (first, second):
        assert merged.name not in consumer.assignment
        fetcher.rows(0, 1)
        fetcher.put(SegmentEnd(1))
        assert offsets(consumer) == (0, 1)
        assert offsets(consumer) is None
    assert consumer.assignment == {merged.name}


def test_positions_say_where_another_reader_continues(bench: Bench) -> None:
    consumer = bench.open()
    bench.fetchers[0].rows(0, 2)
    batch = consumer.poll(0)
    assert batch is not None and dict(batch.positions) == consumer.positions == {bench.first.name: 2}

    bench.open(start=batch.positions)
    assert bench.plans() == [(bench.first.name, 0), (bench.first.name, 2)]


def test_a_batch_that_was_not_returned_does_not_count(bench: Bench) -> None:
    consumer = bench.open(max_bytes=1)
    bench.fetchers[0].rows(0, 2)
    bench.fetchers[0].rows(2, 2)
    assert offsets(consumer) == (0, 2)
    assert consumer.positions == {bench.first.name: 2}


def test_it_is_at_the_end_only_when_a_replica_said_where_that_is(bench: Bench) -> None:
    consumer = bench.open()
    (fetcher,) = bench.fetchers
    eventually(lambda: not consumer._history.due)
    assert not consumer.at_end()
    fetcher.watermark, fetcher.watermark_known = 2, True
    assert not consumer.at_end()
    fetcher.rows(0, 2)
    assert offsets(consumer) == (0, 2) and consumer.at_end()


def test_a_loss_is_reported_once_and_reading_continues_after_it(bench: Bench) -> None:
    consumer = bench.open()
    (fetcher,) = bench.fetchers
    fetcher.put(FetchedLoss(0, 4))
    fetcher.put(FetchedLoss(0, 4))
    fetcher.rows(4, 1)
    with pytest.raises(DataLost) as caught:
        consumer.poll(0)
    assert (caught.value.segment, caught.value.start, caught.value.stop) == (bench.first.name, 0, 4)
    assert offsets(consumer) == (4, 5) and offsets(consumer) is None


def test_losses_are_skipped_on_request(bench: Bench) -> None:
    consumer = bench.open(on_loss="skip")
    bench.fetchers[0].put(FetchedLoss(0, 4))
    bench.fetchers[0].rows(4, 1)
    assert offsets(consumer) == (4, 5)


def test_what_ends_reading_is_raised(bench: Bench) -> None:
    consumer = bench.open()
    bench.fetchers[0].put(FetchFailed(CorruptChunk("no Parquet")))
    with pytest.raises(CorruptChunk):
        consumer.poll(0)
    bench.topic.deleted = UnknownTopic("it was deleted")
    with pytest.raises(UnknownTopic):
        consumer.poll(None)


def test_a_consumer_that_is_closed_holds_nothing_and_returns_nothing(bench: Bench) -> None:
    consumer = bench.open()
    bench.fetchers[0].rows(0, 2)
    consumer.close()
    with pytest.raises(InvalidRequest, match="closed"):
        consumer.poll(0)
    assert consumer._buffer._bytes == 0 and not bench.fetchers[0].rows(2, 1)


# ---- other positions, pauses, parts of a topic


def test_a_seek_drops_what_was_read_ahead_and_reads_from_there(bench: Bench) -> None:
    consumer = bench.open(start={bench.first.name: 5})
    bench.fetchers[0].rows(5, 3)
    consumer.seek({bench.first.name: 2})
    assert bench.plans() == [(bench.first.name, 5), (bench.first.name, 2)]
    assert not bench.fetchers[0].alive and offsets(consumer) is None
    bench.fetchers[1].rows(2, 1)
    assert offsets(consumer) == (2, 3) and consumer.positions == {bench.first.name: 3}


def test_a_seek_before_a_split_reads_the_successors_again_after_it(bench: Bench) -> None:
    low, high = bench.child(1, 0, 4, bench.first), bench.child(2, 4, PARTITIONS, bench.first)
    bench.topic.seal(bench.first, 3, low, high)
    consumer = bench.open(start={low.name: 5, high.name: 6})
    assert consumer.assignment == {low.name, high.name}
    consumer.seek({bench.first.name: 1})
    assert consumer.assignment == {bench.first.name}
    bench.fetchers[-1].rows(1, 2)
    bench.fetchers[-1].put(SegmentEnd(3))
    assert offsets(consumer) == (1, 3) and offsets(consumer) is None
    assert bench.plans()[-2:] == [(low.name, 0), (high.name, 0)]


def test_a_seek_to_where_no_reader_can_be_changes_nothing(bench: Bench) -> None:
    consumer = bench.open()
    bench.fetchers[0].rows(0, 3)
    with pytest.raises(InvalidRequest, match="0 to 99 are possible"):
        consumer.seek({bench.first.name: 100})
    with pytest.raises(InvalidRequest, match=f"possible are: {bench.first.name}"):
        consumer.seek({f"t-0-{PARTITIONS}-9": 1})
    with pytest.raises(InvalidRequest, match="next offset"):
        consumer.seek({bench.first.name: -1})
    assert offsets(consumer) == (0, 3) and len(bench.fetchers) == 1


def test_a_seek_to_a_time_reads_from_what_was_appended_since(bench: Bench) -> None:
    consumer = bench.open(start={bench.first.name: 5})
    bench.found = {bench.first.name: 7}
    consumer.seek_to_time(datetime(2024, 1, 1, tzinfo=UTC))
    assert bench.plans()[-1] == (bench.first.name, 7)


def test_nothing_of_a_paused_segment_is_returned_until_it_is_resumed(bench: Bench) -> None:
    other = bench.topic.segment(1, 4, PARTITIONS)
    first = bench.topic.segment(2, 0, 4)
    bench.topic.set_layout([first, other])
    consumer = bench.open()
    by_name = {f.segment: f for f in bench.fetchers}
    by_name[first.name].rows(0, 3)
    consumer.pause([first.name])
    by_name[first.name].rows(3, 3)
    by_name[other.name].rows(0, 1)
    assert offsets(consumer) == (0, 1) and offsets(consumer) is None
    assert consumer.paused == {first.name}
    consumer.seek({first.name: 2})
    bench.fetchers[-1].rows(2, 3)
    assert offsets(consumer) is None, "a seek does not end a pause"
    consumer.resume()
    assert offsets(consumer) == (2, 5) and consumer.paused == frozenset()
    with pytest.raises(InvalidRequest, match="is not read now; possible are"):
        consumer.pause(["x-0-4-9"])


def test_a_batch_has_at_most_so_many_messages(bench: Bench) -> None:
    consumer = bench.open(max_records=4)
    bench.fetchers[0].rows(0, 3)
    bench.fetchers[0].rows(3, 7)
    assert [offsets(consumer) for _ in range(3)] == [(0, 4), (4, 8), (8, 10)]
    bench.fetchers[0].rows(10, 3)
    batch = consumer.poll(0, max_records=1)
    assert batch is not None and len(batch) == 1 and batch.positions == {bench.first.name: 11}
    for invalid in (0, -1):
        with pytest.raises(InvalidRequest, match="max_records"):
            consumer.poll(0, max_records=invalid)


def test_only_the_chosen_segments_are_read(bench: Bench) -> None:
    low, high = bench.child(1, 0, 4, bench.first), bench.child(2, 4, PARTITIONS, bench.first)
    bench.topic.seal(bench.first, 3, low, high)
    assert bench.open(segments=[high.name]).assignment == {high.name}
    of_slot = bench.open(partitions=[1])
    assert of_slot.assignment == {bench.first.name}
    bench.fetchers[-1].put(SegmentEnd(3))
    bench.fetchers[-1].rows(0, 3)
    assert offsets(of_slot) is None and of_slot.assignment == {low.name}
    for options, message in (
        ({"segments": ["t-0-8-9"]}, "has no segment t-0-8-9; it has"),
        ({"partitions": [PARTITIONS]}, f"from 0 to {PARTITIONS - 1}"),
        ({"partitions": [1], "group": "g"}, "a group reads all segments"),
    ):
        with pytest.raises(InvalidRequest, match=message):
            bench.open(**options)  # type: ignore[arg-type]


# ---- in a group


def test_a_new_group_begins_where_its_first_member_says(bench: Bench) -> None:
    bench.found, bench.leader.positions = {bench.first.name: 4}, {}
    bench.open("g", start=datetime(2024, 1, 1, tzinfo=UTC))
    first = bench.leader.requests("JoinGroup")[0]
    assert (first.start, dict(first.start_positions)) == ("positions", {bench.first.name: 4})


def test_no_place_is_searched_for_a_group_that_has_positions(bench: Bench) -> None:
    bench.open("g", start=datetime(2024, 1, 1, tzinfo=UTC))
    assert bench.searches == 0 and bench.leader.requests("JoinGroup")[0].start == "earliest"


def test_a_member_that_goes_back_is_not_moved_on_by_its_next_heartbeat(bench: Bench) -> None:
    bench.leader.positions = {bench.first.name: 8}
    consumer = bench.open("g")
    bench.fetchers[0].rows(8, 3)
    assert offsets(consumer) == (8, 11)
    consumer.seek({bench.first.name: 2})
    bench.heartbeat(consumer)
    assert bench.plans() == [(bench.first.name, 8), (bench.first.name, 2)]
    assert consumer.commit() == {}, "nothing was returned since"
    bench.fetchers[1].rows(2, 3)
    assert offsets(consumer) == (2, 5)
    bench.leader.positions = {bench.first.name: 20}
    bench.heartbeat(consumer)
    assert bench.plans()[-1] == (bench.first.name, 20), "another member has read further"
    with pytest.raises(InvalidRequest, match="is not assigned to this member; possible are"):
        consumer.seek({"t-0-4-9": 1})


def test_the_program_learns_of_its_segments_when_it_polls(bench: Bench) -> None:
    other = bench.topic.segment(1, 4, PARTITIONS)
    calls: list[tuple[str, frozenset[str]]] = []
    consumer = bench.open(
        "g", on_assigned=lambda it: calls.append(("+", it)), on_revoked=lambda it: calls.append(("-", it))
    )
    assert calls == [], "not in the thread of the heartbeats"
    assert offsets(consumer) is None
    bench.assign(consumer, {other.name: 0})
    bench.heartbeat(consumer)
    assert offsets(consumer) is None
    consumer.close()
    one, two = frozenset([bench.first.name]), frozenset([other.name])
    assert calls == [("+", one), ("-", one), ("+", two), ("-", two)]


def test_a_revoked_segment_can_be_committed_before_another_member_gets_it(bench: Bench) -> None:
    consumer: Consumer
    consumer = bench.open("g", on_revoked=lambda _: consumer.commit())
    assert offsets(consumer) is None
    bench.fetchers[0].rows(0, 3)
    assert offsets(consumer) == (0, 3) and offsets(consumer) is None, "it is done with the batch"
    bench.assign(consumer, {})
    bench.heartbeat(consumer)
    assert bench.leader.acknowledged() == 1, "the program does not know yet"
    bench.heartbeat_at_once(consumer)
    assert offsets(consumer) is None
    eventually(lambda: bench.leader.acknowledged() == 2)
    assert bench.order()[:2] == ["CommitPositions", "JoinGroup"]


def test_callbacks_without_a_group_are_refused(bench: Bench) -> None:
    with pytest.raises(InvalidRequest, match="need a group"):
        bench.open(on_assigned=print)


def test_a_segment_whose_batch_is_still_worked_on_is_not_given_up(bench: Bench) -> None:
    consumer = bench.open("g")
    bench.fetchers[0].rows(0, 3)
    assert offsets(consumer) == (0, 3)

    bench.assign(consumer, {})
    for _ in range(3):
        bench.heartbeat(consumer)
    assert consumer.assignment == frozenset(), "it is no longer read"
    assert bench.leader.acknowledged() == 1, "but the next owner must wait"

    bench.heartbeat_at_once(consumer)
    assert consumer.commit() == {bench.first.name: 3}
    eventually(lambda: bench.leader.acknowledged() == 2)
    assert bench.order()[:2] == ["CommitPositions", "JoinGroup"]


def test_the_next_poll_gives_a_revoked_segment_up_without_a_commit(bench: Bench) -> None:
    consumer = bench.open("g")
    bench.fetchers[0].rows(0, 3)
    assert offsets(consumer) == (0, 3)
    bench.assign(consumer, {})
    assert bench.leader.acknowledged() == 1

    assert offsets(consumer) is None
    eventually(lambda: bench.leader.acknowledged() == 2)
    assert bench.leader.committed == {}


def test_a_commit_of_another_segment_does_not_give_up_the_one_that_is_worked_on(bench: Bench) -> None:
    other = bench.topic.segment(1, 4, PARTITIONS)
    bench.leader.positions = {bench.first.name: 0, other.name: 0}
    consumer = bench.open("g")
    by_name = {f.segment: f for f in bench.fetchers}
    by_name[other.name].rows(0, 1)
    assert offsets(consumer) == (0, 1)
    by_name[bench.first.name].rows(0, 3)
    assert offsets(consumer) == (0, 3)
    bench.assign(consumer, {other.name: 0})

    assert consumer.commit({other.name: 1}) == {other.name: 1}
    bench.heartbeat(consumer)
    assert bench.leader.acknowledged() == 1
    assert consumer.commit() == {bench.first.name: 3}
    eventually(lambda: bench.leader.acknowledged() == 2)


def test_rows_of_a_revoked_segment_are_withheld(bench: Bench) -> None:
    consumer = bench.open("g")
    (fetcher,) = bench.fetchers
    fetcher.rows(0, 3)
    bench.assign(consumer, {})

    assert offsets(consumer) is None
    assert consumer._buffer._bytes == 0, "their budget is free"
    assert not fetcher.rows(3, 3)
    eventually(lambda: bench.leader.acknowledged() == 2)
    assert consumer.commit() == {}


def test_rows_that_were_taken_while_their_segment_was_revoked_are_withheld(bench: Bench) -> None:
    consumer = bench.open("g")
    bench.fetchers[0].rows(0, 3)
    taken = consumer._buffer.take(1000)
    assert taken is not None
    bench.assign(consumer, {bench.first.name: 2})  # another member had it in between

    assert consumer._to_batch(*taken) is None
    assert consumer.positions == {bench.first.name: 2}


def test_a_segment_that_another_member_read_further_continues_there(bench: Bench) -> None:
    consumer = bench.open("g")
    bench.fetchers[0].rows(0, 3)
    bench.fetchers[0].rows(3, 3)
    bench.assign(consumer, {bench.first.name: 5})
    assert offsets(consumer) is None
    assert bench.plans() == [(bench.first.name, 0), (bench.first.name, 5)]


def test_a_segment_that_stays_is_not_read_again(bench: Bench) -> None:
    consumer = bench.open("g")
    bench.fetchers[0].rows(0, 3)
    assert offsets(consumer) == (0, 3)
    for committed in (0, 2, 3):
        bench.assign(consumer, {bench.first.name: committed})
    assert bench.plans() == [(bench.first.name, 0)]
    assert bench.fetchers[0].rows(3, 1) and offsets(consumer) == (3, 4)


def test_a_segment_that_comes_back_continues_at_what_was_committed(bench: Bench) -> None:
    consumer = bench.open("g")
    bench.fetchers[0].rows(0, 3)
    assert offsets(consumer) == (0, 3)
    bench.assign(consumer, {})
    bench.assign(consumer, {bench.first.name: 1})
    assert bench.plans() == [(bench.first.name, 0), (bench.first.name, 1)]


def test_a_segment_that_was_read_to_its_end_is_not_read_again_before_its_commit(bench: Bench) -> None:
    consumer = bench.open("g")
    bench.topic.seal(bench.first, 3, bench.child(1, 0, PARTITIONS, bench.first))
    refreshed(consumer, bench.topic.snapshot.layout.segments[0])
    bench.fetchers[0].rows(0, 3)
    bench.fetchers[0].put(SegmentEnd(3))
    assert offsets(consumer) == (0, 3) and offsets(consumer) is None

    bench.heartbeat(consumer)
    assert len(bench.fetchers) == 1, "the leader still assigns it, because its end is not committed"
    before = len(bench.leader.requests("JoinGroup"))
    assert consumer.commit() == {bench.first.name: 3}
    bench.leader.wait_for_heartbeat(before)


def test_an_assignment_from_before_a_commit_has_nothing_read_again(bench: Bench) -> None:
    """A heartbeat that the leader answered before the commit is applied after it."""
    consumer = bench.open("g")
    bench.topic.seal(bench.first, 3, bench.child(1, 0, PARTITIONS, bench.first))
    refreshed(consumer, bench.topic.snapshot.layout.segments[0])
    bench.fetchers[0].rows(0, 3)
    bench.fetchers[0].put(SegmentEnd(3))
    assert offsets(consumer) == (0, 3) and offsets(consumer) is None
    before = len(bench.leader.requests("JoinGroup"))
    assert consumer.commit() == {bench.first.name: 3}
    bench.leader.wait_for_heartbeat(before)
    consumer._on_assignment({bench.first.name: 0})
    assert len(bench.fetchers) == 1, "its end is committed"


def test_a_segment_that_comes_back_late_continues_at_its_own_last_commit(bench: Bench) -> None:
    consumer = bench.open("g")
    bench.fetchers[0].rows(0, 3)
    assert offsets(consumer) == (0, 3)
    assert consumer.commit() == {bench.first.name: 3}
    consumer._on_assignment({})
    consumer._on_assignment({bench.first.name: 1})
    assert bench.plans() == [(bench.first.name, 0), (bench.first.name, 3)]


def test_what_is_committed_after_its_segment_came_back_is_not_read_again(bench: Bench) -> None:
    consumer = bench.open("g")
    bench.fetchers[0].rows(0, 3)
    assert offsets(consumer) == (0, 3)
    consumer._on_assignment({})
    consumer._on_assignment({bench.first.name: 0})
    bench.fetchers[1].rows(0, 3)
    assert consumer.commit({bench.first.name: 3}) == {bench.first.name: 3}
    assert bench.plans()[-1] == (bench.first.name, 3) and offsets(consumer) is None


def test_a_commit_after_a_seek_does_not_end_it(bench: Bench) -> None:
    consumer = bench.open("g")
    bench.fetchers[0].rows(0, 3)
    assert offsets(consumer) == (0, 3)
    consumer.seek({bench.first.name: 1})
    assert consumer.commit({bench.first.name: 3}) == {bench.first.name: 3}
    assert bench.plans()[-1] == (bench.first.name, 1), "the program wants to read these again"


def test_only_what_was_returned_is_committed(bench: Bench) -> None:
    consumer = bench.open("g")
    bench.fetchers[0].rows(0, 3)
    assert consumer.commit() == {} and bench.leader.requests("CommitPositions") == []
    assert offsets(consumer) == (0, 3)
    assert consumer.commit({bench.first.name: 1}) == {bench.first.name: 1}
    assert consumer.commit() == {bench.first.name: 3}, "the rest of the batch"
    assert consumer.commit() == {}


def test_a_commit_that_fails_is_made_by_the_next_one(bench: Bench) -> None:
    consumer = bench.open("g")
    bench.fetchers[0].rows(0, 3)
    assert offsets(consumer) == (0, 3)
    bench.leader.failures["CommitPositions"] = [Unavailable("no leader")]
    with pytest.raises(Unavailable):
        consumer.commit()
    assert consumer.commit() == bench.leader.committed == {bench.first.name: 3}


def test_a_commit_leaves_out_what_has_moved_to_another_member(bench: Bench) -> None:
    consumer = bench.open("g")
    bench.fetchers[0].rows(0, 3)
    assert offsets(consumer) == (0, 3)
    bench.leader.failures["CommitPositions"] = [StaleGeneration("moved", segments=(bench.first.name,))]
    assert consumer.commit() == bench.leader.committed == {}


def test_auto_commit_stores_what_was_read_before_it_gives_the_segment_up(bench: Bench) -> None:
    consumer = bench.open("g", auto_commit=True)
    bench.fetchers[0].rows(0, 3)
    assert offsets(consumer) == (0, 3)
    bench.assign(consumer, {})
    bench.heartbeat(consumer)
    assert bench.leader.acknowledged() == 1 and bench.leader.committed == {}

    bench.heartbeat_at_once(consumer)
    assert offsets(consumer) is None
    eventually(lambda: bench.leader.acknowledged() == 2)
    assert bench.leader.committed == {bench.first.name: 3}
    assert bench.order()[:2] == ["CommitPositions", "JoinGroup"]


@pytest.mark.parametrize(("fails", "committed"), [(False, True), (True, False)])
def test_a_program_that_fails_does_not_commit_its_batch(bench: Bench, fails: bool, committed: bool) -> None:
    def work() -> None:
        with bench.open("g", auto_commit=True) as consumer:
            bench.fetchers[0].rows(0, 3)
            assert offsets(consumer) == (0, 3)
            if fails:
                raise ZeroDivisionError

    if fails:
        with pytest.raises(ZeroDivisionError):
            work()
    else:
        work()
    assert bool(bench.leader.committed) == committed
    assert bench.leader.calls[-1][0] == "LeaveGroup"


def test_close_commits_nothing_by_itself(bench: Bench) -> None:
    consumer = bench.open("g")
    bench.fetchers[0].rows(0, 3)
    assert offsets(consumer) == (0, 3)
    consumer.close()
    assert bench.leader.committed == {} and bench.leader.calls[-1][0] == "LeaveGroup"


def test_a_group_learns_of_a_loss_after_the_leader_failed_to_answer(bench: Bench) -> None:
    bench.leader.failures["GetPositions"] = [Unavailable("no leader")]
    lost = lpb.GroupPositions.Loss(segment="gone-0-8-9", start=2, stop=5)
    bench.leader.lost = [lost, lpb.GroupPositions.Loss(segment="old-0-8-8", start=0, stop=1, acknowledged=True)]
    consumer = bench.open("g")
    eventually(lambda: len(bench.leader.requests("GetPositions")) == 2 and consumer._losses_received)

    with pytest.raises(DataLost) as caught:
        consumer.poll(0)
    assert (caught.value.segment, caught.value.start, caught.value.stop) == ("gone-0-8-9", 2, 5)
    assert offsets(consumer) is None, "once, and not what an earlier member was told"


# ---- losses with all replicas

LOST = {"lost_from": 3, "lost_to": 5, "lost_open_ended": True}


def loss(consumer: Consumer) -> tuple[str, int, int | None, bool]:
    """The next loss that is raised."""
    with pytest.raises(DataLost) as caught:
        consumer.poll(0)
    return caught.value.segment, caught.value.start, caught.value.stop, caught.value.at_least


def test_a_reader_that_has_passed_a_segment_learns_that_it_lost_more(bench: Bench) -> None:
    consumer = bench.open()
    bench.fetchers[0].rows(0, 3)
    bench.fetchers[0].put(FetchedLoss(3, 5, True))
    bench.fetchers[0].put(SegmentEnd(3))
    successor = bench.child(1, 0, PARTITIONS, bench.first)
    bench.topic.seal(bench.first, 3, successor, **LOST)
    refreshed(consumer, successor)
    assert offsets(consumer) == (0, 3)
    assert loss(consumer) == (bench.first.name, 3, 5, True)
    assert offsets(consumer) is None

    bench.topic.seal(bench.first, 3, successor, **LOST | {"lost_to": 9})
    eventually(lambda: consumer._sealed[bench.first.name].lost_to == 9 and not consumer._history.due)
    consumer._fetch_readable()
    assert loss(consumer) == (bench.first.name, 5, 9, True), "the rest"
    assert offsets(consumer) is None


@pytest.mark.parametrize("position", [3, 4])
def test_a_reader_that_starts_at_the_end_of_a_segment_learns_what_is_lost(bench: Bench, position: int) -> None:
    bench.topic.seal(bench.first, 3, bench.child(1, 0, PARTITIONS, bench.first), **LOST)
    consumer = bench.open(start={bench.first.name: position})
    assert loss(consumer) == (bench.first.name, 3, 5, True)
    assert offsets(consumer) is None


def test_a_reader_that_starts_behind_a_loss_learns_nothing_of_it(bench: Bench) -> None:
    successor = bench.child(1, 0, PARTITIONS, bench.first)
    bench.topic.seal(bench.first, 3, successor, **LOST)
    consumer = bench.open(start={successor.name: 0})
    assert offsets(consumer) is None


def test_a_member_learns_what_the_group_has_passed_and_confirms_it(bench: Bench) -> None:
    bench.leader.lost_with_replicas = [lpb.GroupPositions.Loss(segment="gone-0-8-9", start=2, stop=5, at_least=True)]
    consumer = bench.open("g")
    eventually(lambda: consumer._losses_received)
    assert consumer.commit() == {} and not bench.leader.requests("CommitPositions"), "its program does not know yet"
    assert loss(consumer) == ("gone-0-8-9", 2, 5, True)
    assert consumer.commit() == {}
    (request,) = bench.leader.requests("CommitPositions")
    assert dict(request.known_losses) == {"gone-0-8-9": 5}
    assert consumer.commit() == {} and len(bench.leader.requests("CommitPositions")) == 1, "once is enough"


def test_a_new_member_learns_of_losses_before_it_gets_messages(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.leader.lost_with_replicas = [lpb.GroupPositions.Loss(segment="gone-0-8-9", start=2, stop=5, at_least=True)]
    bench.leader.failures["GetPositions"] = [Unavailable("no leader")] * 1_000_000
    monkeypatch.setattr(smq.consumer, "LOSSES_TIMEOUT_SECONDS", 1e9)
    consumer = bench.open("g")
    bench.fetchers[0].rows(0, 2)
    bench.fetchers[0].rows(2, 1)
    assert offsets(consumer) is None
    monkeypatch.setattr(smq.consumer, "LOSSES_TIMEOUT_SECONDS", 0.0)
    assert offsets(consumer) == (0, 3), "if the leader does not answer for long, reading goes on"
    bench.fetchers[0].rows(3, 1)
    monkeypatch.setattr(smq.consumer, "LOSSES_TIMEOUT_SECONDS", 1e9)
    bench.leader.failures["GetPositions"].clear()
    eventually(lambda: consumer._losses_received)
    assert loss(consumer) == ("gone-0-8-9", 2, 5, True)
    assert offsets(consumer) == (3, 4)


def test_a_confirmation_that_failed_is_repeated_with_the_next_commit(bench: Bench) -> None:
    consumer = bench.open("g", on_loss="skip")
    bench.fetchers[0].put(FetchedLoss(0, 4, True))
    bench.fetchers[0].rows(4, 1)
    assert offsets(consumer) == (4, 5)
    assert consumer.poll(0) is None
    bench.leader.failures["CommitPositions"] = [Unavailable("no leader")]
    with pytest.raises(Unavailable):
        consumer.commit()
    assert consumer.commit() == {bench.first.name: 5}
    assert [dict(r.known_losses) for r in bench.leader.requests("CommitPositions")] == [{bench.first.name: 4}] * 2


def test_a_member_reads_its_losses_again_when_the_index_records_one(bench: Bench) -> None:
    consumer = bench.open("g")
    eventually(lambda: consumer._losses_received and not consumer._group_losses.due)
    name = bench.first.name
    bench.leader.lost_with_replicas = [lpb.GroupPositions.Loss(segment=name, start=3, stop=5, at_least=True)]
    bench.topic.seal(bench.first, 3, bench.child(1, 0, PARTITIONS, bench.first), **LOST)
    eventually(lambda: len(bench.leader.requests("GetPositions")) == 2 and not consumer._group_losses.due)
    eventually(lambda: bool(consumer._losses._unreported))
    assert loss(consumer) == (name, 3, 5, True)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda bench: bench.open().commit(), "without a group cannot commit"),
        (lambda bench: bench.open(auto_commit=True), "auto_commit needs a group"),
        (lambda bench: bench.open(on_loss="ignore"), "on_loss must be"),
        (lambda bench: bench.open(schema="oldest"), "schema must be"),
        (lambda bench: bench.open(max_bytes=0), "more than 0"),
    ],
)
def test_what_makes_no_sense_is_refused(bench: Bench, call: Callable[[Bench], object], says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        call(bench)
