"""The messages of the partitions that this broker leads: from memory, and older ones from the filer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from itertools import takewhile

import pyarrow as pa

from smq_broker.kafka.partitions.rows import record_batch, rows_of
from smq_broker.kafka.partitions.tail_index import IndexedEntry, TailIndex
from smq_broker.segments.hosted_segment import HostedSegment
from smq_core.model.entities import number_of
from smq_core.replica.recent_entries import entries_from
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

    def read_state(self, hosted: HostedSegment, partition: int) -> TailRead | None:
        """Where the partition ends, without what is in memory. None if the segment is not open."""
        index = self._index(hosted)
        with hosted.lock:
            self._update(hosted, index)
            state = self._state(hosted.machine, index, partition)
        return TailRead(state=state) if state is not None else None

    def progress(self, hosted: HostedSegment, since: int) -> tuple[int, set[int] | None]:
        """The watermark, and the partitions with messages between ``since`` and it. None stands for any."""
        with hosted.lock:
            machine = hosted.machine
            watermark = machine.watermark
            if machine.state is not ReplicaState.OPEN or since < machine.tail_start:
                return watermark, None
            changed = takewhile(lambda it: it.end <= watermark, entries_from(machine.tail, since))
            return watermark, {partition for it in changed for partition, _ in it.batch.partition_rows}

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
    epoch, key = number_of(hosted.name), hosted.topic.spec.key
    encoded = bytearray()
    run: list[pa.RecordBatch] = []
    first = following = 0
    for it in entries:
        begin = max(offset, it.offset)
        if run and begin != following:
            encoded += record_batch(pa.Table.from_batches(run), first, epoch, key)
            run = []
        if not run:
            first = begin
        run.append(rows_of(it, partition, offset))
        following = it.end
    if run:
        encoded += record_batch(pa.Table.from_batches(run), first, epoch, key)
    return encoded


class Watches:
    """Calls ``callback`` when one of the segments may have more to read, or has another state. Used in one thread."""

    def __init__(self, tails: TailReader) -> None:
        self._tails = tails
        self.callback: Callable[[], None] = lambda: None
        self._segments: dict[HostedSegment, _Watched] = {}

    def begin(self, hosted: HostedSegment) -> None:
        if hosted in self._segments:
            return
        watched = self._segments[hosted] = _Watched(lambda: self.callback())
        with hosted.lock:
            hosted.watchers.add(watched.note)
            watched.watermark = hosted.machine.watermark

    def take_progress(self) -> Mapping[HostedSegment, set[int] | None]:
        """The segments that have changed since they were begun, or since the last call, with the partitions that may
        have more. None stands for any partition.
        """
        found = {}
        for hosted, watched in self._segments.items():
            if watched.has_changed:
                watched.has_changed = False
                watched.watermark, found[hosted] = self._tails.progress(hosted, watched.watermark)
        return found

    def keep(self, segments: Collection[HostedSegment | None]) -> None:
        """Watches no others any more."""
        for hosted in [it for it in self._segments if it not in segments]:
            watched = self._segments.pop(hosted)
            with hosted.lock:
                hosted.watchers.discard(watched.note)

    def end(self) -> None:
        self.keep(())


class _Watched:
    """A segment, and its watermark up to which partitions were read."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback = callback
        self.watermark = 0
        self.has_changed = False
        self.note = self._note  # one object, so that it can be discarded

    def _note(self) -> None:
        """Called by the segment, under its lock. Once until the change is taken is enough."""
        if not self.has_changed:
            self.has_changed = True
            self._callback()
