"""One segment is read from a position to its end: chunks in memory, and the tail as a test plays it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from smq.consuming.fetching import fetcher as fetcher_module
from smq.consuming.fetching import tail_fetcher
from smq.consuming.fetching.fetch_plan import FetchPlan
from smq.consuming.fetching.fetcher import Fetcher
from smq.consuming.fetching.prefetch_buffer import (
    FetchedItem,
    FetchedLoss,
    FetchedRows,
    FetchFailed,
    PrefetchBuffer,
    SegmentEnd,
)
from smq.consuming.reader_losses import data_lost
from smq.reading.tail_stream import TailFrame
from smq.transport import filer_health
from smq_core.errors import CorruptChunk, NotHosted, QuotaExceeded, SmqError, StoreUnavailable, Unreachable
from smq_core.file_lists.file_list import FileEntry
from smq_core.model.entities import RemovedSegment, Replica
from smq_core.model.loss import Loss
from smq_proto.v1 import data_pb2 as pb
from smq_storage.catalog import paths, sealed_index
from smq_storage.compaction.superseded_files import delete_superseded
from smq_storage.compaction.topic_compaction import compact_topic, merge_here
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import StoredObject
from smq_storage.tables.file_lists import read_file_list
from smq_storage.tables.segment_files import StoredSegment
from support.data.stored_segment import CountingStore, Requests
from support.in_memory.topic import REPLICAS, TopicInMemory, rows_of
from support.waiting import eventually


class FakeTail:
    """The streams of one test: each next one plays the next script, and a script that ends waits to be aborted."""

    def __init__(self) -> None:
        self.touched = 0
        self.scripts: list[list[TailFrame | SmqError]] = []
        self.opened: list[tuple[str, int]] = []
        """The broker and the position of each stream."""

    def stream(self, segment: str, uid: str, replica: Replica, channels: object, readers: int) -> FakeStream:
        return FakeStream(self, replica)


class FakeStream:
    def __init__(self, tail: FakeTail, replica: Replica) -> None:
        self._tail = tail
        self._replica = replica
        self._aborted = threading.Event()

    def frames(self, start: int) -> Iterator[TailFrame]:
        self._tail.opened.append((self._replica.broker, start))
        for frame in self._tail.scripts.pop(0) if self._tail.scripts else ():
            if isinstance(frame, SmqError):
                raise frame
            yield frame
        self._aborted.wait()

    def is_unresponsive(self, now: float) -> bool:
        return now > 0

    def touch(self) -> None:
        self._tail.touched += 1

    def abort(self) -> None:
        self._aborted.set()


class Bench:
    def __init__(self, file_lists: bool = False) -> None:
        self.topic = TopicInMemory()
        self.topic.files = CountingStore(self.topic.files)
        self.file_lists = file_lists
        self.segment = self.topic.first
        self.tail = FakeTail()
        self.buffer: PrefetchBuffer[Fetcher] = PrefetchBuffer(1 << 20)
        self.fetchers: list[Fetcher] = []

    def fetch(self, position: int = 0, *, since: int = 0, max_bytes: int = 1 << 20) -> Fetcher:
        view: Any = self.topic
        sealed = self.topic.sealed.get(self.segment.name)
        plan = FetchPlan(self.segment.name, position, sealed, since)
        self.fetchers.append(Fetcher(view=view, buffer=self.buffer, fetch_plan=plan, max_bytes=max_bytes, ordinal=0))
        return self.fetchers[-1]

    def next(self) -> FetchedItem:
        """The next item, as it was put in."""
        found = eventually(lambda: self.buffer.take(1), "an item", pause=0.001)
        assert found is not None
        return found[1]

    def rest(self) -> list[FetchedItem]:
        """All items up to the segment's end, which is the last."""
        items = [self.next()]
        while not isinstance(items[-1], SegmentEnd | FetchFailed):
            items.append(self.next())
        eventually(lambda: not self.fetchers[-1].alive)
        assert self.buffer.take(1) is None, "nothing comes after the end"
        return items


@pytest.fixture(params=["chain", "file_list"])
def bench(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Sealed segments have file lists, or are read by their chunk chains."""
    made = Bench(request.param == "file_list")
    monkeypatch.setattr(tail_fetcher, "TailStream", made.tail.stream)
    monkeypatch.setattr(fetcher_module, "MIN_BACKOFF_SECONDS", 0.001)
    monkeypatch.setattr(fetcher_module, "MAX_BACKOFF_SECONDS", 0.001)
    yield made
    for fetcher in made.fetchers:
        fetcher.stop()
        fetcher.join(60)


def ranges(items: list[FetchedItem]) -> list[object]:
    """The offsets of rows as pairs, everything else as it is."""
    return [(item.first, item.end) if isinstance(item, FetchedRows) else item for item in items]


def frame(first: int, rows: int, watermark: int, **values: Any) -> TailFrame:
    table = rows_of(rows) if rows else None
    return TailFrame(table=table, first=first, watermark=watermark, nbytes=table.nbytes if table else 0, **values)


def seal_chunks(bench: Bench, *appended: list[int], **values: Any) -> int:
    """Chunks with these append times and the seal of a segment that has left the layout. Returns its end."""
    end = 0
    for times in appended:
        bench.topic.put_chunk(bench.segment, end, times)
        end += len(times)
    bench.topic.put_seal(bench.segment, end)
    bench.topic.seal(bench.segment, end, bench.topic.segment(1, predecessors=(bench.segment.name,)), **values)
    if bench.file_lists:
        bench.topic.name_file_list(bench.segment)
    return end


def requests(bench: Bench) -> Requests:
    """What was requested of the filer since the last call."""
    store = bench.topic.files
    assert isinstance(store, CountingStore)
    counted = store.requests
    store.reset()
    return counted


# ---- chunks


def test_a_sealed_segment_is_read_from_its_chunks_to_its_end(bench: Bench) -> None:
    seal_chunks(bench, [1, 2, 3], [4, 5])
    bench.fetch()
    assert ranges(bench.rest()) == [(0, 3), (3, 5), SegmentEnd(5)]
    assert bench.tail.opened == [], "no broker is needed"


def test_rows_before_the_position_are_withheld(bench: Bench) -> None:
    seal_chunks(bench, [1, 2, 3], [4, 5])
    bench.fetch(2)
    items = bench.rest()
    assert ranges(items) == [(2, 3), (3, 5), SegmentEnd(5)]
    assert isinstance(items[0], FetchedRows) and items[0].table["value"].to_pylist() == [b"2"]


def test_a_segment_that_is_read_to_its_end_has_no_rows(bench: Bench) -> None:
    seal_chunks(bench, [1, 2, 3])
    bench.fetch(3)
    assert bench.rest() == [SegmentEnd(3)]


@pytest.mark.parametrize(
    ("since", "expected"),
    [
        (0, [(0, 3), (3, 5)]),
        (2, [(1, 3), (3, 5)]),
        (3, [(2, 3), (3, 5)]),
        (4, [(3, 5)]),
        (5, [(4, 5)]),
        (6, []),
    ],
)
def test_a_start_by_time_leaves_out_earlier_rows_and_counts_them(
    bench: Bench, since: int, expected: list[tuple[int, int]]
) -> None:
    seal_chunks(bench, [1, 2, 3], [4, 5])
    fetcher = bench.fetch(since=since)
    items = bench.rest()
    assert ranges(items) == [*expected, SegmentEnd(5)]
    for item in items[:-1]:
        assert isinstance(item, FetchedRows)
        times = item.table["appended"].cast(pa.int64()).to_pylist()
        assert times == [offset + 1 for offset in range(item.first, item.end)], "each row is at its own offset"
    assert fetcher.position == 5


def test_a_reader_that_resumes_after_a_start_by_time_repeats_and_misses_nothing(bench: Bench) -> None:
    seal_chunks(bench, [1, 2, 3], [4, 5])
    bench.fetch(since=2, max_bytes=1)  # a row at a time
    first = bench.next()
    assert isinstance(first, FetchedRows) and first.table["value"].to_pylist() == [b"1"]
    bench.fetchers[-1].stop()

    bench.fetch(first.end)
    assert ranges(bench.rest()) == [(2, 3), (3, 5), SegmentEnd(5)]


def test_large_chunks_are_handed_out_in_parts_of_consecutive_offsets(bench: Bench) -> None:
    seal_chunks(bench, list(range(10)))
    bench.fetch(3, max_bytes=1)
    assert ranges(bench.rest()) == [*((at, at + 1) for at in range(3, 10)), SegmentEnd(10)]


def test_what_a_seal_lost_is_reported_before_the_end(bench: Bench) -> None:
    seal_chunks(bench, [1, 2, 3], lost=Loss(3, 7))
    bench.fetch()
    assert ranges(bench.rest()) == [(0, 3), FetchedLoss(Loss(3, 7)), SegmentEnd(3)]


def test_chunks_that_retention_removed_are_reported_as_lost(bench: Bench) -> None:
    seal_chunks(bench)
    bench.topic.sealed[bench.segment.name] = replace(bench.topic.sealed[bench.segment.name], end=9)
    bench.topic.files.delete(bench.topic.chain(bench.segment).path(0))
    bench.fetch(4)
    assert bench.rest() == [FetchedLoss(Loss(4, 9)), SegmentEnd(9)]


def test_a_chunk_that_cannot_be_read_ends_reading_with_its_error(bench: Bench) -> None:
    bench.topic.files.put_new(bench.topic.chain(bench.segment).path(0), b"no Parquet at all")
    bench.topic.seal(bench.segment, 5, bench.topic.segment(1, predecessors=(bench.segment.name,)))
    bench.fetch()
    (item,) = bench.rest()
    assert isinstance(item, FetchFailed) and isinstance(item.error, CorruptChunk)


# ---- file lists


def test_a_position_finds_its_file_by_the_file_list_without_listing_or_walking(bench: Bench) -> None:
    seal_chunks(bench, *([at] * 2 for at in range(50)))
    path = bench.topic.name_file_list(bench.segment)
    requests(bench)
    bench.fetch(95)
    assert ranges(bench.rest()) == [(95, 96), (96, 98), (98, 100), SegmentEnd(100)]
    chain = bench.topic.chain(bench.segment)
    made = requests(bench)
    assert made.reads == [path, chain.path(94), chain.path(96), chain.path(98)]
    assert made.listings == 0


def test_a_start_by_time_skips_the_files_that_are_older(bench: Bench) -> None:
    seal_chunks(bench, *([at, at] for at in range(50)))
    path = bench.topic.name_file_list(bench.segment)
    requests(bench)
    bench.fetch(since=49)
    assert ranges(bench.rest()) == [(98, 100), SegmentEnd(100)]
    assert requests(bench).reads == [path, bench.topic.chain(bench.segment).path(98)]


def test_a_file_of_the_file_list_that_is_gone_is_reported_as_lost(bench: Bench) -> None:
    seal_chunks(bench, [1, 2, 3], [4, 5], [6])
    bench.topic.name_file_list(bench.segment)
    bench.topic.files.delete(bench.topic.chain(bench.segment).path(3))
    bench.fetch(1)
    assert ranges(bench.rest()) == [(1, 3), FetchedLoss(Loss(3, 6)), SegmentEnd(6)]


# ---- chunks that were merged, and deleted since the reader has read the index


def compact(bench: Bench, *, delete: bool = True) -> list[FileEntry]:
    """Merges all small files of the segment. Readers know the index as it was before. Returns the new files."""
    store, name, planned = bench.topic.files, bench.topic.name, bench.topic.sealed[bench.segment.name]
    if not planned.file_list and not sealed_index.read(store, name, "uid"):
        bench.topic.name_file_list(bench.segment)
    sealed_index.append(store, name, "uid", [bench.topic.sealed[bench.segment.name]])
    bench.topic.sealed[bench.segment.name] = planned
    assert all(it.switched for it in compact_topic(store, name, "uid", None, merge_here(store)))
    (entry,) = sealed_index.read(store, name, "uid")
    if delete:
        delete_superseded(store, StoredSegment.of(name, "uid", entry), RetryPolicy(1.0))
    file_list = read_file_list(store, name, "uid", entry.file_list)
    assert file_list is not None
    return list(file_list.files)


@pytest.mark.parametrize("position", range(6))
def test_a_reader_in_the_middle_goes_on_with_the_merged_file(bench: Bench, position: int) -> None:
    seal_chunks(bench, [1, 2], [3, 4], [5, 6])
    compact(bench)
    bench.fetch(position)
    assert ranges(bench.rest()) == [(position, 6), SegmentEnd(6)]


def test_a_reader_between_two_files_goes_on_with_the_merged_one(bench: Bench) -> None:
    """It has read a chunk already, so it knows where the next one begins."""
    seal_chunks(bench, [1, 2], [3, 4], [5, 6], [7, 8], [9, 10])
    assert offsets_around(bench, lambda: compact(bench)) == list(range(10))


def test_a_reader_between_two_chunks_goes_on_although_the_file_lists_are_gone(bench: Bench) -> None:
    seal_chunks(bench, [1, 2], [3, 4], [5, 6], [7, 8], [9, 10])

    def compact_and_lose_file_lists() -> None:
        compact(bench)
        for it in list(bench.topic.files.list(paths.file_lists_folder(bench.topic.name, "uid"))):
            bench.topic.files.delete(it.path)

    assert offsets_around(bench, compact_and_lose_file_lists) == list(range(10))


def offsets_around(bench: Bench, change: Callable[[], object]) -> list[int]:
    """What a reader gets that has got the first chunk before the change, and waits for room meanwhile."""
    bench.buffer = PrefetchBuffer(1)  # the next rows wait until these are taken
    fetcher = bench.fetch()
    eventually(lambda: fetcher.position == 2)
    change()
    items = bench.rest()
    assert items[-1] == SegmentEnd(10) and len(items) > 2
    rows = [(item.first, item.end) for item in items[:-1] if isinstance(item, FetchedRows)]
    assert len(rows) == len(items) - 1
    return [offset for start, stop in rows for offset in range(start, stop)]


def test_a_reader_goes_on_by_the_chain_if_its_file_list_is_gone_too(bench: Bench) -> None:
    seal_chunks(bench, [1, 2], [3, 4], [5, 6])
    compact(bench)
    for it in list(bench.topic.files.list(paths.file_lists_folder(bench.topic.name, "uid"))):
        bench.topic.files.delete(it.path)
    bench.fetch(3)
    assert ranges(bench.rest()) == [(3, 6), SegmentEnd(6)]


def test_a_merged_chain_has_rows_references_and_the_start_by_time(bench: Bench) -> None:
    bench.topic.put_chunk(bench.segment, 0, [1, 2])
    bench.topic.put_chunk(bench.segment, 2, [3, 4])
    bench.topic.put_reference(bench.segment, 4, 3, appended=5)
    bench.topic.put_chunk(bench.segment, 7, [6])
    bench.topic.put_seal(bench.segment, 8)
    bench.topic.seal(bench.segment, 8, bench.topic.segment(1, predecessors=(bench.segment.name,)))
    if bench.file_lists:
        bench.topic.name_file_list(bench.segment)
    compact(bench)
    bench.fetch(since=4)
    assert ranges(bench.rest()) == [(3, 4), (4, 7), (7, 8), SegmentEnd(8)]


def test_a_file_that_the_next_file_list_lacks_too_is_lost(bench: Bench) -> None:
    seal_chunks(bench, [1, 2], [3, 4], [5, 6])
    (merged,) = compact(bench)
    bench.topic.files.delete(merged.path)
    bench.fetch(3)
    lost = FetchedLoss(Loss(3, 6)) if bench.file_lists else FetchedLoss(Loss(3, 6), merged.path)
    assert ranges(bench.rest()) == [lost, SegmentEnd(6)]


def test_a_segment_that_was_removed_meanwhile_is_lost(bench: Bench) -> None:
    seal_chunks(bench, [1, 2], [3, 4], [5, 6])
    compact(bench)
    store, name = bench.topic.files, bench.topic.name
    removed = RemovedSegment(name=bench.segment.name, number=bench.segment.number, end=6, removed_at=1)
    sealed_index.remove(store, name, "uid", [removed])
    for it in [it for it in store.list(paths.topic_folder(name, "uid")) if it.path.endswith(".parquet")]:
        store.delete(it.path)
    bench.fetch(3)
    assert bench.rest() == [FetchedLoss(Loss(3, 6)), SegmentEnd(6)]


@pytest.mark.parametrize("position", [3, 6])
def test_only_what_was_not_read_of_a_segment_that_retention_has_removed_is_lost(bench: Bench, position: int) -> None:
    """The reader did not know that it is sealed."""
    bench.topic.set_layout([bench.topic.segment(1, predecessors=(bench.segment.name,))])
    bench.topic.removed = {bench.segment.name: 6}
    bench.fetch(position)
    assert bench.rest() == [*([FetchedLoss(Loss(3, 6))] if position == 3 else []), SegmentEnd(6)]


@pytest.mark.parametrize("altered", [False, True])
def test_an_upload_that_is_gone_or_altered_is_a_loss_with_its_name(bench: Bench, altered: bool) -> None:
    bench.topic.put_chunk(bench.segment, 0, [1, 2])
    path = bench.topic.put_reference(bench.segment, 2, 3, appended=3)
    bench.topic.put_reference(bench.segment, 5, 2, appended=4)
    bench.topic.put_seal(bench.segment, 7)
    bench.topic.seal(bench.segment, 7, bench.topic.segment(1, predecessors=(bench.segment.name,)))
    if bench.file_lists:
        bench.topic.name_file_list(bench.segment)
    if altered:
        bench.topic.files.put(path, b"another file")
    else:
        bench.topic.files.delete(path)
    bench.fetch()
    items = bench.rest()
    assert ranges(items) == [(0, 2), FetchedLoss(Loss(2, 5), path), (5, 7), SegmentEnd(7)]
    error = data_lost(bench.segment.name, Loss(2, 5), path)
    assert (error.path, error.start, error.stop) == (path, 2, 5) and path in error.message


def test_a_file_that_is_not_the_one_of_the_file_list_ends_reading_with_its_name(bench: Bench) -> None:
    seal_chunks(bench, [1, 2, 3], [4, 5])
    bench.topic.name_file_list(bench.segment)
    path = bench.topic.chain(bench.segment).path(3)
    bench.topic.files.put(path, bytes(bench.topic.files.get(path).data))
    bench.fetch()
    rows, failed = bench.rest()
    assert ranges([rows]) == [(0, 3)]
    assert isinstance(failed, FetchFailed) and isinstance(failed.error, CorruptChunk) and failed.error.path == path


@pytest.mark.parametrize("content", [None, b"", b"{}"])
def test_a_segment_without_a_readable_file_list_is_read_by_its_chain(bench: Bench, content: bytes | None) -> None:
    seal_chunks(bench, [1, 2, 3], [4, 5])
    path = bench.topic.name_file_list(bench.segment)
    bench.topic.files.delete(path)
    if content is not None:
        bench.topic.files.put(path, content)
    bench.fetch(since=2)
    assert ranges(bench.rest()) == [(1, 3), (3, 5), SegmentEnd(5)]


def test_a_file_list_that_cannot_be_read_now_is_read_later(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    seal_chunks(bench, [1, 2, 3])
    path = bench.topic.name_file_list(bench.segment)
    read, failures = bench.topic.files.get, [StoreUnavailable("away"), StoreUnavailable("away")]

    def get(wanted: str) -> StoredObject:
        if failures and wanted == path:
            raise failures.pop()
        return read(wanted)

    monkeypatch.setattr(bench.topic.files, "get", get)
    bench.fetch()
    assert ranges(bench.rest()) == [(0, 3), SegmentEnd(3)]
    assert requests(bench).listings == 0


def test_a_filer_that_is_away_in_between_costs_no_rows_and_doubles_none(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    seal_chunks(bench, [1, 2, 3], [4, 5])
    read, calls = bench.topic.files.get, iter(range(1000))

    def get(wanted: str) -> StoredObject:
        if next(calls) % 2:
            raise StoreUnavailable("away")
        return read(wanted)

    monkeypatch.setattr(bench.topic.files, "get", get)
    bench.fetch()
    assert ranges(bench.rest()) == [(0, 3), (3, 5), SegmentEnd(5)]


def test_a_filer_that_is_away_is_named_until_it_is_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, filer_health.__name__)
    monkeypatch.setattr(filer_health, "FIRST_WARNING_SECONDS", 0.0)
    seal_chunks(bench, [1, 2, 3])
    away = StoreUnavailable("no clear answer from s3://bucket (http://filer:8333)")
    back = threading.Event()

    def failing(read: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if not back.is_set():
                raise away
            return read(*arguments, **options)

        return call

    for name in ("get", "get_range", "get_tail", "list"):
        monkeypatch.setattr(bench.topic.files, name, failing(getattr(bench.topic.files, name)))
    fetcher = bench.fetch()
    eventually(lambda: fetcher.filer_error)
    assert fetcher.filer_error is away
    eventually(lambda: caplog.records)
    assert [record.levelno for record in caplog.records] == [logging.WARNING], "not one for each attempt"
    assert "(http://filer:8333)" in caplog.text

    back.set()
    assert ranges(bench.rest()) == [(0, 3), SegmentEnd(3)]
    assert fetcher.filer_error is None
    assert "the filer answers again" in caplog.records[-1].getMessage()


# ---- the tail


def test_the_tail_is_read_from_a_replica_up_to_its_seal(bench: Bench) -> None:
    outcome = pb.SealOutcome(segment=bench.segment.name, end=5)
    bench.tail.scripts = [[frame(0, 3, 3), frame(3, 0, 3), frame(3, 2, 5), frame(5, 0, 5, sealed=outcome)]]
    bench.fetch()
    assert ranges(bench.rest()) == [(0, 3), (3, 5), SegmentEnd(5)]
    assert bench.tail.opened == [("b0", 0)]


def test_a_tail_that_breaks_continues_at_another_replica_and_repeats_nothing(bench: Bench) -> None:
    outcome = pb.SealOutcome(segment=bench.segment.name, end=6)
    bench.tail.scripts = [
        [frame(0, 3, 3), Unreachable("gone")],
        [NotHosted("not yet")],
        [frame(2, 4, 6), frame(6, 0, 6, sealed=outcome)],  # begins at a batch of which one row was read
    ]
    bench.fetch()
    assert ranges(bench.rest()) == [(0, 3), (3, 6), SegmentEnd(6)]
    assert bench.tail.opened == [("b0", 0), ("b1", 3), ("b0", 3)]
    eventually(lambda: bench.topic.unreachable == [REPLICAS[0].incarnation], "only the one that cannot be reached")


def test_a_quota_of_streams_is_reported_once_and_reading_goes_on(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    outcome = pb.SealOutcome(segment=bench.segment.name, end=3)
    refused: list[TailFrame | SmqError] = [QuotaExceeded("ada has 2 streams open, and its quota is 2")]
    bench.tail.scripts = [refused, refused, [frame(0, 3, 3), frame(3, 0, 3, sealed=outcome)]]
    with caplog.at_level(logging.WARNING):
        bench.fetch()
        assert ranges(bench.rest()) == [(0, 3), SegmentEnd(3)]
    (line,) = [it.message for it in caplog.records]
    assert "ada has 2 streams open" in line
    assert bench.topic.unreachable == []


def test_what_a_replica_has_trimmed_comes_from_chunks_and_the_rest_from_that_replica(bench: Bench) -> None:
    bench.topic.put_chunk(bench.segment, 0, [1, 2, 3])
    outcome = pb.SealOutcome(segment=bench.segment.name, end=5)
    bench.tail.scripts = [[frame(0, 0, 5, trimmed_to=3)], [frame(3, 2, 5), frame(5, 0, 5, sealed=outcome)]]
    bench.fetch()
    assert ranges(bench.rest()) == [(0, 3), (3, 5), SegmentEnd(5)]
    assert bench.tail.opened == [("b0", 0), ("b0", 3)]


def test_a_reader_of_the_tail_waits_for_no_filer(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    failed: list[str] = []

    def fail(path: str) -> Any:
        failed.append(path)
        raise StoreUnavailable("away")

    monkeypatch.setattr(bench.topic.files, "get", fail)
    bench.tail.scripts = [[Unreachable("gone")], [frame(0, 2, 2)]]
    fetcher = bench.fetch()
    assert ranges([bench.next()]) == [(0, 2)]
    assert failed and fetcher.filer_error is None


def test_an_unresponsive_replica_is_left_for_another(bench: Bench) -> None:
    bench.tail.scripts = [[frame(0, 2, 2)], [frame(2, 1, 3)]]
    fetcher = bench.fetch()
    assert ranges([bench.next()]) == [(0, 2)]
    fetcher.check_liveness(1.0)
    assert ranges([bench.next()]) == [(2, 3)]
    assert bench.tail.opened == [("b0", 0), ("b1", 2)]


def test_a_process_that_got_no_cpu_does_not_blame_the_replica(bench: Bench) -> None:
    bench.tail.scripts = [[frame(0, 2, 2)], [frame(2, 1, 3)]]
    fetcher = bench.fetch()
    assert ranges([bench.next()]) == [(0, 2)]
    fetcher.check_liveness(1.0, late_by=1.0)
    assert bench.tail.touched == 1 and bench.tail.opened == [("b0", 0)]


def test_a_loss_at_the_end_of_the_tail_is_reported(bench: Bench) -> None:
    outcome = pb.SealOutcome(segment=bench.segment.name, end=2, lost=pb.Loss(start=2, stop=4))
    bench.tail.scripts = [[frame(0, 3, 3), frame(3, 0, 3, sealed=outcome)]]
    bench.fetch()
    assert ranges(bench.rest()) == [(0, 3), FetchedLoss(Loss(2, 4)), SegmentEnd(2)]


def test_the_watermark_is_known_only_when_a_replica_has_reported_it(bench: Bench) -> None:
    fetcher = bench.fetch(2)
    eventually(lambda: bench.tail.opened)
    assert not fetcher.watermark_known
    fetcher.stop()
    bench.tail.scripts = [[frame(2, 0, 7)]]
    fetcher = bench.fetch(2)
    eventually(lambda: fetcher.watermark_known)
    assert fetcher.watermark == 7


# ---- stopping and the budget


def test_a_reader_that_is_stopped_hands_out_nothing_more_and_gives_its_budget_back(bench: Bench) -> None:
    seal_chunks(bench, [1, 2, 3], [4, 5])
    fetcher = bench.fetch()
    eventually(lambda: not fetcher.alive, "all is read ahead")
    assert bench.buffer._bytes > 0
    fetcher.stop()
    assert bench.buffer.take(1) is None
    assert bench.buffer._bytes == 0


def test_a_reader_that_waits_for_budget_ends_when_it_is_stopped(bench: Bench) -> None:
    seal_chunks(bench, list(range(100)))
    bench.buffer = PrefetchBuffer(1)
    fetcher = bench.fetch(max_bytes=1)
    eventually(lambda: bench.buffer._bytes > 0)
    assert fetcher.alive, "it has read one row of many"
    fetcher.stop()
    eventually(lambda: not fetcher.alive)
    assert bench.buffer._bytes == 0 and bench.buffer.take(1) is None


def test_a_second_reader_of_a_segment_gets_nothing_of_the_first(bench: Bench) -> None:
    seal_chunks(bench, [1, 2, 3], [4, 5])
    first = bench.fetch()
    eventually(lambda: not first.alive)
    first.stop()
    bench.fetch(3)
    assert ranges(bench.rest()) == [(3, 5), SegmentEnd(5)]
