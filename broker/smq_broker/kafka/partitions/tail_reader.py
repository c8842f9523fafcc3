"""The messages of the partitions that this broker leads: from memory, and older ones from the filer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from smq_broker.kafka.partitions.rows import record_batch, rows_of
from smq_broker.kafka.partitions.tail_index import IndexedEntry, TailIndex
from smq_broker.segments.hosted_segment import HostedSegment
from smq_core.model.entities import number_of
from smq_core.replica.segment_replica import ReplicaState, SegmentReplica
from smq_storage.thread_runtime import monotonic

# For how long after the last read of a segment its recent messages are kept in memory for Kafka clients.
READ_RECENTLY_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TailState:
    """Of a partition of an open segment: its high watermark, its end, and the lowest offset in memory, if any."""

    high_watermark: int
    end: int
    start: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TailRead:
    """``entries`` are the ones that were asked for. ``is_in_filer`` means that these messages are not in memory."""

    state: TailState
    entries: tuple[IndexedEntry, ...] = ()
    is_in_filer: bool = False


@dataclass(slots=True)
class _ReadSegment:
    index: TailIndex = field(default_factory=TailIndex)
    read_at: float = 0.0


class TailReader:
    """Used by the listener's loop only. ``clock`` is a monotonic clock in seconds.

    A segment that is read counts as one with a reader: some of its messages stay in memory after they were written to
    the filer.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._segments: dict[HostedSegment, _ReadSegment] = {}
        self._checked_at = clock()

    def read_all(self, hosted: HostedSegment, partition: int) -> TailRead | None:
        """All that is in memory below the watermark. None if the segment is not open."""
        index = self._index(hosted)
        with hosted.lock:
            self._update(hosted, index)
            state = self._state(hosted.machine, index, partition)
            if state is None or state.start is None:
                return None if state is None else TailRead(state=state)
            found = index.find(partition, state.start, hosted.machine.watermark)
            return TailRead(state=state, entries=tuple(it for it in found if it.entry.batch.reference is None))

    def read(self, hosted: HostedSegment, partition: int, offset: int, max_bytes: int) -> TailRead | None:
        """What can be delivered from this offset on; at least one entry, if there is any.

        None if the segment is not open, or does not know yet where its partitions begin.
        """
        machine, index = hosted.machine, self._index(hosted)
        with hosted.lock:
            self._update(hosted, index)
            state = self._state(machine, index, partition)
            if state is None or offset >= state.high_watermark:
                return None if state is None else TailRead(state=state)
            if state.start is None or offset < state.start:
                return TailRead(state=state, is_in_filer=True)
            found: list[IndexedEntry] = []
            size = 0
            for it in index.find(partition, offset, machine.watermark):
                batch = it.entry.batch
                if batch.reference is not None:  # its rows are in an upload
                    return TailRead(state=state, entries=tuple(found), is_in_filer=not found)
                own = batch.nbytes * it.messages // batch.rows
                if found and size + own > max_bytes:
                    break
                found.append(it)
                size += own
            return TailRead(state=state, entries=tuple(found))

    def _index(self, hosted: HostedSegment) -> TailIndex:
        now = self._clock()
        if now - self._checked_at >= READ_RECENTLY_SECONDS / 4:
            self._checked_at = now
            self._forget_unread(now)
        found = self._segments.get(hosted)
        if found is None:
            found = self._segments[hosted] = _ReadSegment()
            hosted.memory.reader_opened()
        found.read_at = now
        return found.index

    def _forget_unread(self, now: float) -> None:
        for hosted, it in list(self._segments.items()):
            if now - it.read_at >= READ_RECENTLY_SECONDS:
                del self._segments[hosted]
                hosted.memory.reader_closed()

    @staticmethod
    def _update(hosted: HostedSegment, index: TailIndex) -> None:
        if hosted.machine.state is ReplicaState.OPEN:
            index.update(hosted.machine)

    @staticmethod
    def _state(machine: SegmentReplica, index: TailIndex, partition: int) -> TailState | None:
        if machine.state is not ReplicaState.OPEN:
            return None
        high_watermark = index.end(partition, machine.watermark)
        if high_watermark is None:
            return None
        end = machine.partition_end(partition)
        return TailState(high_watermark=high_watermark, end=end, start=index.start(partition, machine.tail_start))


def encode_entries(hosted: HostedSegment, partition: int, offset: int, entries: tuple[IndexedEntry, ...]) -> bytearray:
    """Record batches with the messages of these entries from this offset on. One for each run without a jump."""
    epoch = number_of(hosted.name)
    encoded = bytearray()
    run: list[pa.RecordBatch] = []
    first = following = 0
    for it in entries:
        begin = max(offset, it.offset)
        if run and begin != following:
            encoded += record_batch(pa.Table.from_batches(run), first, epoch)
            run = []
        if not run:
            first = begin
        run.append(rows_of(it, partition, offset))
        following = it.end
    if run:
        encoded += record_batch(pa.Table.from_batches(run), first, epoch)
    return encoded


class Watches:
    """Calls back once when one of the segments may have more to read, or has another state."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback = callback
        self._segments: list[HostedSegment] = []

    def begin(self, hosted: HostedSegment) -> None:
        if hosted in self._segments:
            return
        with hosted.lock:
            hosted.watchers.add(self._callback)
        self._segments.append(hosted)

    def end(self) -> None:
        for hosted in self._segments:
            with hosted.lock:
                hosted.watchers.discard(self._callback)
        self._segments.clear()
