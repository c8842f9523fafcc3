"""Messages of a partition are read by Kafka offset: each one once, in order, through all kinds of files."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from smq_core.errors import CorruptChunk, DataLost, InvalidRequest, StoreUnavailable
from smq_core.file_lists.compaction_plan import FileRun
from smq_core.model.entities import Topic, TopicSpec
from smq_core.model.keyspace import KeyRange
from smq_core.model.loss import Loss
from smq_core.model.partition_offsets import UNKNOWN_LOSS
from smq_storage.catalog import paths
from smq_storage.compaction.file_list_switch import switch_file_list
from smq_storage.compaction.merging import merge_run
from smq_storage.compaction.superseded_files import delete_superseded
from smq_storage.object_store import absence
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import ObjectInfo, ObjectMissing, ObjectTail, open_store
from smq_storage.partitions.history import PartitionHistory
from smq_storage.partitions.reader import PartitionReader
from smq_storage.tables.segment_files import StoredSegment, load_file_list
from smq_storage.uploads import upload_format
from smq_storage.uploads.upload_format import UploadFooter
from support.data import uploads
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


class HidingStore(CountingStore):
    """Answers that one object does not exist, although it does."""

    hidden: Sequence[str] = ()

    def get_tail(self, path: str, nbytes: int) -> ObjectTail:
        if path in self.hidden:
            raise ObjectMissing(path)
        return super().get_tail(path, nbytes)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        return (it for it in super().list(prefix, start_after) if it.path not in self.hidden)


def chunk(made: CountedTopic, segment: str, first: int) -> str:
    return paths.chunk(made.topic.name, made.topic.uid, segment, first)


def read_once(reader: PartitionReader, offset: int, partition: int = 0) -> range:
    rows = reader.read_partition(partition, offset, 1000)
    assert rows is not None
    return range(rows.first_offset, rows.end)


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


@pytest.mark.parametrize("seed", range(10))
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


def test_messages_after_a_loss_come_after_a_jump(made: CountedTopic) -> None:
    first = made.open()
    made.write(first, [0, 0, 1])
    made.seal(first, Loss(3, 5))
    second = made.open(predecessors=[first])
    made.write(second, [0])
    reading = Reading(made)
    jumped = 2 + 2 + UNKNOWN_LOSS
    before, after = reading.reader.read_partition(0, 0, 1000), reading.reader.read_partition(0, 2, 1000)
    assert before is not None and after is not None
    assert (before.first_offset, before.end, before.epoch) == (0, 2, 0)
    assert (after.first_offset, after.end, after.epoch) == (jumped, jumped + 1, 1)
    assert reading.history.stored_end(1) == 1, "the end stays until there is a message"


def test_a_read_has_about_the_bytes_that_are_wanted_and_at_least_one_message(made: CountedTopic) -> None:
    segment = made.open()
    for _ in range(3):
        made.write(segment, [1] * 10)
    reading = Reading(made)

    def lengths(max_bytes: int) -> int:
        rows = reading.reader.read_partition(1, 5, max_bytes)
        assert rows is not None and rows.first_offset == 5
        return len(rows.rows)

    assert lengths(1) == 1
    assert 2 <= lengths(200) < 10
    assert lengths(1 << 20) == 25, "of several files"


def test_each_message_is_found_by_its_offset(made: CountedTopic) -> None:
    segment = made.open()
    for partitions in ([0, 0], [1], [0, 1, 0, 0], [0]):
        made.write(segment, partitions)
    for is_indexed in (False, True):
        if is_indexed:
            made.seal(segment)
            made.index(segment)
        history = Reading(made).history
        places = [history.find(0, offset) for offset in range(6)]
        assert [place.offset for place in places if place is not None] == list(range(6))
        assert [place.index for place in places if place is not None] == [0, 1, 0, 1, 2, 0]


def test_a_topic_with_another_partitioner_has_no_kafka_offsets(made: CountedTopic) -> None:
    with pytest.raises(InvalidRequest, match="partitioner Kafka"):
        PartitionHistory(store=made.store, topic=Topic("default/t", "u", TopicSpec()))


@pytest.mark.parametrize("partition", [-1, 4])
def test_a_partition_that_the_topic_does_not_have_is_refused(made: CountedTopic, partition: int) -> None:
    made.open()
    with pytest.raises(InvalidRequest, match="partitions 0 to 3"):
        Reading(made).history.log_start(partition)


def test_messages_that_retention_removed_are_lost_and_the_log_starts_after_them(made: CountedTopic) -> None:
    segments = [made.open()]
    for _ in range(3):
        made.write(segments[-1], [0, 1, 0])
        made.seal(segments[-1])
        segments.append(made.open(predecessors=segments[-1:]))
    stored = [made.index(it) for it in segments[:-1]]
    reading = Reading(made)
    assert reading.read(0) == [0, 1, 2, 3, 4, 5]
    made.remove(stored[0], {0: 2, 1: 1})
    fresh = Reading(made)
    assert [fresh.history.log_start(partition) for partition in range(4)] == [2, 1, 0, 0]
    assert fresh.all(made) == made.messages
    with pytest.raises(DataLost, match="messages 1 to 1 of partition 0"):
        fresh.reader.read_partition(0, 1, 100)
    # One that knows the removed segment finds out when its files are gone.
    made.remove(stored[1], {0: 4, 1: 2})
    with pytest.raises(DataLost, match="retention has removed them"):
        Reading(made).reader.read_partition(0, 3, 100)
    reading.now += 100
    assert reading.history.log_start(0) == 4
    made.remove(stored[2], {0: 6, 1: 3})
    empty = Reading(made)
    assert [(empty.history.log_start(it), empty.history.stored_end(it)) for it in range(4)] == [
        (6, 6),
        (3, 3),
        (0, 0),
        (0, 0),
    ]
    assert empty.reader.read_partition(0, 6, 100) is None


def test_a_reader_that_planned_before_a_compaction_reads_the_merged_file(made: CountedTopic) -> None:
    segment = made.open()
    for _ in range(5):
        made.write(segment, [0, 1, 1])
    made.seal(segment)
    made.index(segment)
    reading = Reading(made, decoded_bytes=1)
    assert reading.read(0, 0) == made.messages[0]
    compact(made, segment, delete=True)
    assert [reading.read(partition, 1) for partition in (0, 1)] == [made.messages[0][1:], made.messages[1][1:]]


def test_a_living_segment_is_read_as_it_grows(made: CountedTopic) -> None:
    segment = made.open()
    made.write(segment, [0, 0])
    reading = Reading(made)
    assert reading.read(0) == [0, 1]
    assert reading.read(0, 2) == []
    made.write(segment, [0, 1])
    assert reading.read(0, 2) == [2]
    made.seal(segment)
    following = made.open(predecessors=[segment])
    made.write(following, [0])
    assert reading.read(0, 3) == [3], "although the reader has not known the successor"


def test_a_successor_is_not_read_while_chunks_of_its_predecessor_are_not_found(made: CountedTopic) -> None:
    reader, store, first = hidden_chunks(made)
    # The listing is older than the last chunks, and so is the server that answers the next request.
    store.hidden = [chunk(made, first, 1), chunk(made, first, 3)]
    assert read_once(reader, 0) == range(1)
    assert reader.read_partition(0, 1, 1000) is None
    store.hidden = []
    assert read_once(reader, 1) == range(1, 3)


def test_a_chunk_that_the_filer_hides_before_the_seal_chunk_is_not_passed(made: CountedTopic) -> None:
    reader, store, first = hidden_chunks(made)
    store.hidden = [chunk(made, first, 1)]
    assert read_once(reader, 0) == range(1)
    with pytest.raises(StoreUnavailable, match="although it does"):
        reader.read_partition(0, 1, 1000)
    store.hidden = []
    assert read_once(reader, 1) == range(1, 3)


def hidden_chunks(made: CountedTopic) -> tuple[PartitionReader, HidingStore, str]:
    """A living segment of two chunks with the seal chunk, and its successor with a message after a jump."""
    first = made.open()
    made.write(first, [0])
    made.write(first, [0, 0])
    made.seal(first, Loss(3, 4))
    made.write(made.open(predecessors=[first]), [0])
    store = HidingStore(made.store)
    return PartitionReader(PartitionHistory(store=store, topic=made.topic)), store, first


def test_a_jump_within_a_segment_is_where_its_first_message_is(made: CountedTopic) -> None:
    first = made.open()
    made.write(first, [0, 1])
    made.seal(first, Loss(2, 2, at_least=True))
    second = made.open(predecessors=[first])
    made.write(second, [1, 1])
    made.write(second, [0, 1])
    reading = Reading(made)
    assert reading.all(made) == made.messages
    assert read_once(reading.reader, 1) == range(1 + UNKNOWN_LOSS, 2 + UNKNOWN_LOSS)


def test_a_part_of_an_upload_is_read(made: CountedTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload_format, "ROW_GROUP_ROWS", 4)
    first = made.open()
    made.seal(first)
    _, right = (made.open(it, [first]) for it in ALL.split_at([2]))
    made.refer(right, [2, 3] * 7, others=5)
    made.refer(right, [2, 3] * 7, others=2, cut=9)
    assert Reading(made).all(made) == made.messages
    assert [read_once(Reading(made).reader, it, 3).start for it in range(14)] == list(range(14))


def test_an_upload_whose_footer_is_wrong_is_corrupt(made: CountedTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    right = uploads.footer_of

    def wrong(*arguments: Any) -> UploadFooter:
        footer = right(*arguments)
        (_, one), (_, other) = footer.partitions
        return replace(footer, partitions=((0, one + 1), (1, other - 1)))

    monkeypatch.setattr(uploads, "footer_of", wrong)
    made.refer(made.open(), [0, 0, 1, 1])
    with pytest.raises(CorruptChunk, match="that its footer says"):
        Reading(made).reader.read_partition(0, 0, 1000)


def test_a_segment_that_ended_empty_and_unread_is_passed(made: CountedTopic) -> None:
    segments = [made.open()]
    made.write(segments[0], [0, 1])
    made.seal(segments[0])
    segments.append(made.open(predecessors=segments[-1:]))
    made.seal(segments[1], uninherited=True)
    segments.append(made.open(predecessors=segments[-1:]))
    made.write(segments[2], [0])
    reading = Reading(made)
    assert reading.all(made) == made.messages
    for segment in segments[:2]:
        made.index(segment)
    reading.now += 100
    assert reading.all(made) == made.messages
    assert reading.history.end_of_epoch(0, 1) == (1, 1)


def test_epochs_end_where_the_segment_of_the_partition_ended(made: CountedTopic) -> None:
    first = made.open()
    made.write(first, [0, 0, 3])
    made.seal(first)
    left, right = (made.open(it, [first]) for it in ALL.split_at([2]))
    made.write(left, [0])
    made.write(right, [3, 3])
    made.seal(left)
    last = made.open(KeyRange(0, 2), [left])
    made.index(first)
    history = Reading(made).history
    assert [history.end_of_epoch(0, epoch) for epoch in range(4)] == [(0, 2), (1, 3), (1, 3), (3, None)]
    assert [history.end_of_epoch(3, epoch) for epoch in range(4)] == [(0, 1), (0, 1), (2, None), (2, None)]
    made.index(left)
    made.remove(made.stored(first), {})
    assert last.endswith("-3")
    assert Reading(made).history.end_of_epoch(0, 0) == (0, 2), "where the log starts"


def test_an_epoch_that_is_newer_than_what_is_known_does_not_end_where_an_older_one_did(made: CountedTopic) -> None:
    """A client would take that for a log that was cut, and read from there again."""
    segments = [made.open()]
    made.write(segments[0], [0])
    history = Reading(made).history
    assert history.end_of_epoch(0, 0) == (0, None)
    for number in (1, 2):
        made.seal(segments[-1])
        segments.append(made.open(predecessors=segments[-1:]))
        made.write(segments[-1], [0])
        assert history.end_of_epoch(0, number - 1) == (number - 1, number)
        assert history.end_of_epoch(0, number) == (number, None)


def test_the_first_message_since_a_time_is_found(made: CountedTopic) -> None:
    first = made.open()
    made.write(first, [0, 0, 1])
    made.refer(first, [0, 0, 0, 2, 2])
    made.write(first, [0, 1])
    made.seal(first)
    second = made.open(predecessors=[first])
    made.write(second, [0, 0])
    for is_indexed in (False, True):
        if is_indexed:
            made.index(first)
        reader = Reading(made).reader
        assert [reader.offset_for_time(0, it) for it in range(8)] == [(it, it) for it in range(8)]
        assert reader.offset_for_time(0, 8) is None
        assert reader.offset_for_time(1, 1) == (1, 1)
        assert reader.offset_for_time(1, 2) is None


def test_files_without_late_messages_are_not_read_for_a_time(made: CountedTopic) -> None:
    segment = made.open()
    for _ in range(10):
        made.write(segment, [0] * 10)
    made.seal(segment)
    made.index(segment)
    reading = Reading(made)
    reading.history.log_start(0)
    store = made.store
    assert isinstance(store, CountingStore)
    store.reset()
    assert reading.reader.offset_for_time(0, 95) == (95, 95)
    chunks = {path for path in store.requests.reads if path.endswith(".parquet")}
    assert chunks == {paths.chunk(made.topic.name, made.topic.uid, segment, 90)}


def test_a_chunk_whose_messages_are_not_those_of_its_ends_is_corrupt(made: CountedTopic) -> None:
    segment = made.open()
    made.write(segment, [0, 0])
    made.skip(segment, 0, 1)
    made.write(segment, [0])
    reading = Reading(made)
    with pytest.raises(CorruptChunk, match="Kafka offsets 2 to 3"):
        reading.reader.read_partition(0, 2, 100)


def test_a_file_that_is_gone_is_lost_after_a_second_look(made: CountedTopic) -> None:
    segment = made.open()
    for _ in range(3):
        made.write(segment, [0])
    made.seal(segment)
    made.index(segment)
    made.store.delete(paths.chunk(made.topic.name, made.topic.uid, segment, 1))
    reader = Reading(made).reader
    rows = reader.read_partition(0, 0, 1000)
    assert rows is not None and rows.end == 1, "what is before it is read"
    for _ in range(2):
        with pytest.raises(DataLost, match="is gone"):
            reader.read_partition(0, 1, 1000)
    rows = reader.read_partition(0, 2, 1000)
    assert rows is not None and rows.first_offset == 2, "what is after it is read, too"


def test_a_chunk_is_read_once_for_all_its_partitions(made: CountedTopic) -> None:
    segment = made.open()
    made.write(segment, [0, 1, 2, 3] * 5)
    reading = Reading(made)
    assert reading.all(made) == made.messages
    store = made.store
    assert isinstance(store, CountingStore)
    chunk = paths.chunk(made.topic.name, made.topic.uid, segment, 0)
    assert store.requests.reads.count(chunk) == 2, "its end, and all of it"
