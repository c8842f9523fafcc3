"""The consumer over fetchers that the test plays: what it reads without a group, and what it withholds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from smq.consuming.fetching.prefetch_buffer import FetchedLoss, FetchFailed, SegmentEnd
from smq_core.errors import (
    CorruptChunk,
    DataLost,
    InvalidRequest,
    StoreUnavailable,
    UnknownTopic,
)
from smq_core.model.loss import Loss
from support.in_memory.consumer_bench import Bench, offsets, refreshed
from support.in_memory.topic import PARTITIONS
from support.waiting import eventually

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


def test_messages_before_the_start_do_not_keep_it_from_the_end(bench: Bench) -> None:
    consumer = bench.open(start=datetime(2099, 1, 1, tzinfo=UTC))
    (fetcher,) = bench.fetchers
    eventually(lambda: not consumer._history.due)
    fetcher.watermark, fetcher.watermark_known = 2, True
    fetcher.dropped_upto = 1
    assert not consumer.at_end()
    fetcher.dropped_upto = 2
    assert consumer.at_end()


def test_a_loss_is_reported_once_and_reading_continues_after_it(bench: Bench) -> None:
    consumer = bench.open()
    (fetcher,) = bench.fetchers
    fetcher.put(FetchedLoss(Loss(0, 4)))
    fetcher.put(FetchedLoss(Loss(0, 4)))
    fetcher.rows(4, 1)
    with pytest.raises(DataLost) as caught:
        consumer.poll(0)
    assert (caught.value.segment, caught.value.start, caught.value.stop) == (bench.first.name, 0, 4)
    assert offsets(consumer) == (4, 5) and offsets(consumer) is None


def test_losses_are_skipped_on_request(bench: Bench) -> None:
    consumer = bench.open(on_loss="skip")
    bench.fetchers[0].put(FetchedLoss(Loss(0, 4)))
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


@pytest.mark.parametrize(
    "start",
    [{f"t-0-{PARTITIONS}-77": 100}, {"nonsense": 100}, {f"t-0-{PARTITIONS}-0": 100}],
    ids=["unknown segment", "no segment", "after the last message"],
)
def test_a_start_where_no_reader_can_have_been_is_refused(bench: Bench, start: dict[str, int]) -> None:
    bench.watermarks = {bench.first.name: 7}
    with pytest.raises(InvalidRequest, match="0 to 99 are possible"):
        bench.open(start=start)
    assert not bench.fetchers


def test_a_start_in_a_segment_that_is_not_read_is_refused(bench: Bench) -> None:
    other = bench.topic.segment(1, 4, PARTITIONS)
    bench.topic.set_layout([bench.first, other])
    with pytest.raises(InvalidRequest, match=f"{other.name} is not among .* possible are: {bench.first.name}$"):
        bench.open(segments=[bench.first.name], start={bench.first.name: 1, other.name: 2})


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
    for wrong in ({bench.first.name: -1}, {bench.first.name: True}, {bench.first.name: 1.0}, "earliest"):
        with pytest.raises(InvalidRequest, match="next offset"):
            consumer.seek(wrong)  # type: ignore[arg-type]
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
    consumer = bench.open(max_messages=4)
    bench.fetchers[0].rows(0, 3)
    bench.fetchers[0].rows(3, 7)
    assert [offsets(consumer) for _ in range(3)] == [(0, 4), (4, 8), (8, 10)]
    bench.fetchers[0].rows(10, 3)
    batch = consumer.poll(0, max_messages=1)
    assert batch is not None and len(batch) == 1 and batch.positions == {bench.first.name: 11}
    for invalid in (0, -1):
        with pytest.raises(InvalidRequest, match="max_messages"):
            consumer.poll(0, max_messages=invalid)


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
        ({"segments": ["t-0-8-9"]}, "has no segment t-0-8-9; it has t-0-8-0, t-0-4-1, t-4-8-2$"),
        ({"partitions": [PARTITIONS]}, f"from 0 to {PARTITIONS - 1}"),
        ({"partitions": [1], "group": "g"}, "a group reads all segments"),
    ):
        with pytest.raises(InvalidRequest, match=message):
            bench.open(**options)  # type: ignore[arg-type]


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
