"""The history of a topic's partitions: which segments had each of them, one after the other, and to which Kafka offset.

A partition is in one segment at a time, and each of its segments has one predecessor with it. So its segments are a
chain, in the order of their numbers, which are Kafka's leader epochs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from smq_core.errors import CorruptChunk, InvalidRequest
from smq_core.file_lists.file_list import FileEntry
from smq_core.model.entities import Micros, SealedSegment, Topic
from smq_core.model.partition_offsets import PartitionOffsets
from smq_storage.object_store.store import Store
from smq_storage.partitions.file_rows import FileRows
from smq_storage.partitions.segment_log import FoundFile, KnownFiles, LivingLog, SealedLog, SegmentLog
from smq_storage.tables.pinned_reads import read_topic_files
from smq_storage.thread_runtime import monotonic

# How old what is known of the topic's segments may be.
REFRESH_SECONDS = 5.0
# What is kept of files in memory: their names and ends, and separately their numbers of messages by partition.
KNOWN_BYTES = 8 * 1024 * 1024
# Decoded messages that are kept. A chunk of the default size takes a little more than 32 MiB.
DECODED_BYTES = 128 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The file with a message of a partition. ``epoch`` is the number of its segment.

    The file has the partition's messages at the Kafka offsets ``start .. end - 1``. The message is the ``index``-th of
    them, and its offset is above the one that was sought if there is no message at that one, after a loss.
    """

    segment: str
    epoch: int
    file: FileEntry
    start: int
    end: int
    index: int

    @property
    def offset(self) -> int:
        return self.start + self.index


@dataclass(frozen=True, slots=True)
class _Known:
    """The topic's segments in the order of their numbers, and what the index says of partitions."""

    segments: Sequence[SegmentLog]
    ring: PartitionOffsets | None
    read_at: float


class PartitionHistory:
    """Reads index, layout and the metadata of files when they are needed. Safe from many threads.

    ``clock`` is a monotonic clock in seconds. Each call raises InvalidRequest for a partition that the topic does not
    have, UnknownTopic, DataLost and CorruptChunk with the name of a file that is gone or damaged, CorruptDocument and
    StoreUnavailable. If it raises DataLost, call ``refresh`` and repeat it once: files are replaced by others.
    """

    def __init__(
        self,
        *,
        store: Store,
        topic: Topic,
        clock: Callable[[], float] = monotonic,
        refresh_seconds: float = REFRESH_SECONDS,
        known_bytes: int = KNOWN_BYTES,
        decoded_bytes: int = DECODED_BYTES,
    ) -> None:
        """Reads nothing. Raises InvalidRequest if the topic has no Kafka offsets."""
        if not topic.spec.has_kafka_offsets:
            raise InvalidRequest(
                f"the messages of {topic.name} have no Kafka offsets: only topics with the partitioner Kafka have them"
            )
        self.topic = topic
        self.rows = FileRows(store, decoded_bytes, known_bytes)
        self._store = store
        self._clock = clock
        self._refresh_seconds = refresh_seconds
        self._files = KnownFiles(known_bytes)
        self._known: _Known | None = None

    def refresh(self) -> None:
        """Reads index and layout again."""
        known = {(it.entry.name, type(it)): it for it in (self._known.segments if self._known is not None else ())}
        at = self._clock()
        name, uid = self.topic.name, self.topic.uid
        found = read_topic_files(self._store, name, uid)
        segments: dict[str, SegmentLog] = {}
        for segment in found.layout.segments:
            living = known.get((segment.name, LivingLog))
            segments[segment.name] = living or LivingLog(
                store=self._store, topic=name, uid=uid, entry=segment, known=self._files
            )
        for entry in found.index.entries:
            segments[entry.name] = SealedLog(store=self._store, topic=name, uid=uid, entry=entry, known=self._files)
        ordered = sorted(segments.values(), key=lambda it: it.entry.number)
        self._known = _Known(ordered, found.index.partitions, at)

    def log_start(self, partition: int) -> int:
        """The Kafka offset from which on the partition's messages are there. Those before were removed by retention."""
        segments = self._segments(partition)
        if segments and not segments[0].entry.predecessors:
            return 0
        for segment in segments:
            if (first := next(segment.walk(), None)) is not None:
                return first.ends.end(partition) - self.rows.count(segment.entry.name, first.file, partition)
        return self._end_of_removed(partition)

    def stored_end(self, partition: int) -> int:
        """The Kafka offset after the last message that is in a file."""
        for segment in reversed(self._segments(partition)):
            if isinstance(segment, LivingLog):
                if (last := segment.last()) is not None:
                    return last.ends.end(partition)
            elif (end := segment.end(partition)) is not None:
                return end
        return self._end_of_removed(partition)

    def end_of_epoch(self, partition: int, epoch: int) -> tuple[int, int | None]:
        """The largest epoch of the partition up to this one, and the Kafka offset at which it ended.

        None instead of the offset if its segment is not sealed, so that only its primary knows. An epoch before all
        that are there ends where the log starts.
        """
        segments = self._segments(partition)
        known = self._known
        if known is not None and not any(it.entry.number >= epoch for it in known.segments):
            # The epoch is newer than what is known. A client would take the end of an older one for a truncated log.
            self.refresh()
            segments = self._segments(partition)
        before = [it for it in segments if it.entry.number <= epoch]
        if not before:
            return epoch, self.log_start(partition)
        found = before[-1].entry.number
        for segment in reversed(before):
            if isinstance(segment, LivingLog):
                segment.last()
                if segment.seal() is None:
                    return found, None
            # A segment that ended empty may not know where its partitions ended.
            if (end := segment.end(partition)) is not None:
                return found, end
        return found, self.log_start(partition)

    def find(self, partition: int, offset: int) -> Place | None:
        """Where the first message of the partition at this Kafka offset or after it is; None if it is in no file yet.

        It does not say whether messages before it were removed: ``log_start`` does.
        """
        segments = self._segments(partition)
        found, is_complete = _search(segments, partition, offset)
        if found is None and is_complete:
            # All segments that are known are sealed, so there is one that is not known.
            self.refresh()
            found, _ = _search(self._segments(partition), partition, offset)
        return self._place(*found, partition, offset) if found is not None else None

    def find_time(self, partition: int, since: Micros) -> tuple[int, Micros] | None:
        """The Kafka offset of the partition's first message with this timestamp or a later one, and its timestamp.

        None if no file has one. Files without such timestamps are not read.
        """
        for segment in self._segments(partition):
            for file in segment.entries():
                if file.timestamp_max is not None and file.timestamp_max < since:
                    continue
                first = self.rows.first_since(segment.entry.name, file, partition, since)
                counted = segment.file(file.first) if first is not None else None
                if first is not None and counted is not None:
                    start = counted.ends.end(partition) - self.rows.count(segment.entry.name, file, partition)
                    return start + first[0], first[1]
            if segment.seal() is None:
                break
        return None

    def _place(self, segment: SegmentLog, found: FoundFile, partition: int, offset: int) -> Place:
        start = found.start
        if start is None:
            start = found.end - self.rows.count(segment.entry.name, found.file, partition)
            if offset < start and found.unreadable is not None:
                raise found.unreadable
        return Place(
            segment=segment.entry.name,
            epoch=segment.entry.number,
            file=found.file,
            start=start,
            end=found.end,
            index=max(0, offset - start),
        )

    def _segments(self, partition: int) -> Sequence[SegmentLog]:
        """Those that had the partition, oldest first."""
        if not 0 <= partition < self.topic.spec.partitions:
            raise InvalidRequest(
                f"{self.topic.name} has the partitions 0 to {self.topic.spec.partitions - 1}, not {partition}"
            )
        known = self._known
        if known is None or self._clock() - known.read_at >= self._refresh_seconds:
            self.refresh()
            known = self._known
        assert known is not None
        return [it for it in known.segments if partition in it.entry.range]

    def _end_of_removed(self, partition: int) -> int:
        """Where the partition ended, if no file has a message of it."""
        ring = self._known.ring if self._known is not None else None
        return ring.end(partition) if ring is not None else 0


def _search(
    segments: Sequence[SegmentLog], partition: int, offset: int
) -> tuple[tuple[SegmentLog, FoundFile] | None, bool]:
    """The file with the first message at this offset or after it, and whether all segments are known to be sealed.

    A segment is passed only after its seal chunk was read: until then it may have the message, and the file is not
    written yet, or the filer did not find it.
    """
    sealed = [it for it in segments if isinstance(it.entry, SealedSegment) and it.entry.end]
    number = bisect_right(sealed, offset, key=lambda it: _sealed_end(it, partition))
    if number < len(sealed):
        found = sealed[number].find(partition, offset)
        if found is None:
            raise CorruptChunk(
                f"{sealed[number].entry.name} has no file with the Kafka offset {offset} of partition {partition}, "
                f"although it was sealed at {_sealed_end(sealed[number], partition)}"
            )
        return (sealed[number], found), True
    for segment in segments:
        if isinstance(segment, LivingLog):
            if (found := segment.find(partition, offset)) is not None:
                return (segment, found), True
            if segment.seal() is None:
                return None, False
    return None, True


def _sealed_end(segment: SegmentLog, partition: int) -> int:
    end = segment.end(partition)
    if end is None:
        raise CorruptChunk(f"the seal chunk of {segment.entry.name} does not say where its partitions end")
    return end
