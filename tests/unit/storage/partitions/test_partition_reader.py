"""Messages of a partition are read by Kafka offset: each one once, in order, through all kinds of files."""

from __future__ import annotations

import itertools
import random

import pytest

from smq_core.file_lists.compaction_plan import FileRun
from smq_core.model.keyspace import KeyRange
from smq_core.model.loss import Loss
from smq_storage.catalog import paths
from smq_storage.compaction.file_list_switch import switch_file_list
from smq_storage.compaction.merging import merge_run
from smq_storage.compaction.superseded_files import delete_superseded
from smq_storage.object_store import absence
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import open_store
from smq_storage.partitions.history import PartitionHistory
from smq_storage.partitions.reader import PartitionReader
from smq_storage.tables.segment_files import StoredSegment, load_file_list
from smq_storage.uploads import upload_format
from support.data.counted_topic import CountedTopic
from support.data.stored_segment import CountingStore

ALL = KeyRange(0, 4)
POLICY = RetryPolicy(timeout_seconds=1)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(absence, "CONFIRM_AFTER_SECONDS", 0.01)


@pytest.fixture
def made() -> CountedTopic:
    return CountedTopic(CountingStore(open_store("memory://")))


class Reading:
    """A reader of a topic, with a clock that stands still until it is moved."""

    def __init__(self, made: CountedTopic, decoded_bytes: int = 1 << 20) -> None:
        self.now = 0.0
        self.history = PartitionHistory(
            store=made.store, topic=made.topic, clock=lambda: self.now, decoded_bytes=decoded_bytes
        )
        self.reader = PartitionReader(self.history)

    def read(self, partition: int, offset: int = 0, max_bytes: int = 200) -> list[int]:
        """The offsets of all messages from this one on, after a look at their values."""
        found: list[int] = []
        while (rows := self.reader.read_partition(partition, offset, max_bytes)) is not None:
            offsets = list(range(rows.first_offset, rows.end))
            values = [bytes(it).rstrip(b".") for it in rows.rows.column("value").to_pylist()]
            assert offsets, "a read without messages"
            assert values == [b"%d:%d" % (partition, it) for it in offsets]
            assert rows.first_offset >= offset
            found += offsets
            offset = rows.end
        return found

    def all(self, made: CountedTopic) -> dict[int, list[int]]:
        return {p: self.read(p, self.history.log_start(p)) for p in made.messages}


def compact(made: CountedTopic, segment: str, *, delete: bool, take: slice = slice(None)) -> StoredSegment:
    stored = made.stored(segment)
    file_list = load_file_list(made.store, stored)
    assert file_list is not None
    nonces = (f"n{i}" for i in itertools.count())
    merged = merge_run(made.store, stored, FileRun(file_list.files[take]), "key", nonces.__next__)
    assert switch_file_list(made.store, stored, merged, "x", POLICY)
    stored = made.stored(segment)
    if delete:
        assert delete_superseded(made.store, stored, POLICY).complete
    return stored


def mergeable_runs(made: CountedTopic, segment: str) -> list[slice]:
    """The runs of at least two neighbouring files of a segment's file list that are no uploads."""
    file_list = load_file_list(made.store, made.stored(segment))
    files = file_list.files if file_list is not None else ()
    groups = itertools.groupby(range(len(files)), lambda number: paths.is_upload(files[number].path))
    runs = [list(run) for is_upload, run in groups if not is_upload]
    return [slice(run[0], run[-1] + 1) for run in runs if len(run) > 1]


def random_partitions(numbers: random.Random, range_: KeyRange, most: int = 12) -> list[int]:
    return [numbers.randrange(range_.start, range_.stop) for _ in range(numbers.randrange(1, most))]


@pytest.mark.parametrize("seed", range(12))
def test_all_messages_of_a_partition_are_read_through_splits_merges_losses_uploads_and_compactions(
    made: CountedTopic, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload_format, "ROW_GROUP_ROWS", 3)
    numbers = random.Random(seed)
    living = [made.open()]
    reading = Reading(made, decoded_bytes=numbers.choice([1, 1 << 20]))
    for _ in range(25):
        segment = numbers.choice(living)
        range_ = made.range(segment)
        what = numbers.choice(["write"] * 4 + ["refer", "split", "merge", "roll", "read"])
        if what == "write":
            made.write(segment, random_partitions(numbers, range_))
        elif what == "refer":
            made.refer(segment, random_partitions(numbers, range_), others=numbers.randrange(3) if range_.start else 0)
        elif what == "read":
            assert reading.all(made) == made.messages
        else:
            sealing = sorted(living) if what == "merge" else [segment]
            for it in sealing:
                made.seal(it, numbers.choice([None, None, Loss(made.end(it), made.end(it) + 3)]))
            if what == "split" and len(range_) > 1:
                at = numbers.randrange(range_.start + 1, range_.stop)
                new = [made.open(it, sealing) for it in range_.split_at([at])]
            else:
                new = [made.open(ALL if what == "merge" else range_, sealing)]
            living = [it for it in living if it not in sealing] + new
            for it in sealing:
                made.index(it, file_list=numbers.random() < 0.8)
                if runs := mergeable_runs(made, it):
                    compact(made, it, delete=numbers.random() < 0.5, take=numbers.choice(runs))
        reading.now += numbers.choice([0.0, 100.0])
    reading.now += 100
    for one in (reading, Reading(made)):
        assert one.all(made) == made.messages
        for partition, offsets in made.messages.items():
            for offset in numbers.sample(offsets, min(3, len(offsets))):
                assert one.read(partition, offset, numbers.choice([1, 50, 10_000])) == [
                    it for it in offsets if it >= offset
                ]
            assert one.history.stored_end(partition) == (offsets[-1] + 1 if offsets else 0)
