"""The messages of the partitions that this broker leads: from memory, and older ones from the filer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import pyarrow as pa

from smq_broker.kafka.partitions.rows import record_batch, rows_of
from smq_broker.kafka.partitions.tail_index import IndexedEntry, TailIndex
from smq_broker.segments.hosted_segment import HostedSegment
from smq_core.model.entities import number_of
from smq_core.replica.segment_replica import ReplicaState, SegmentReplica


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


class TailReader:
    """Used by the listener's loop only, except that ``watch`` is called back by others."""

    def __init__(self) -> None:
        self._indexes: WeakKeyDictionary[HostedSegment, TailIndex] = WeakKeyDictionary()

    def state(self, hosted: HostedSegment, partition: int) -> TailState | None:
        """None if the segment is sealed, or does not know where its partitions begin."""
        with hosted.lock:
            return self._state(hosted.machine, self._index(hosted), partition)

    def read(self, hosted: HostedSegment, partition: int, offset: int, max_bytes: int) -> TailRead | None:
        """What can be delivered from this offset on; at least one entry, if there is any. None as for ``state``."""
        machine = hosted.machine
        with hosted.lock:
            index = self._index(hosted)
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
        index = self._indexes.get(hosted)
        if index is None:
            index = self._indexes[hosted] = TailIndex()
        if hosted.machine.state is ReplicaState.OPEN:
            index.update(hosted.machine)
        return index

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
