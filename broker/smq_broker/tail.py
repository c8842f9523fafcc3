"""A reader's stream: the tail from an offset up to the watermark, from the memory of any replica."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from smq_broker.batches import MAX_MESSAGE
from smq_broker.held import POLL, Held
from smq_broker.payloads import rows_of
from smq_core.entries import Entry
from smq_core.replica import State
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import outcome_to_pb

HEARTBEAT = 1.0

Frame = tuple[pa.RecordBatch, bytes]


def tail_frames(held: Held, position: int, context: Any) -> Iterator[Frame]:
    """Batches with their ``TailBatch``; a heartbeat each second; the last frame says ``sealed`` or ``trimmed_to``."""
    last_frame = 0.0
    while not context.is_cancelled():
        with held.lock:
            entries, last = _look(held, position)
            wait = last_frame + HEARTBEAT - time.monotonic()
            if not entries and last is None and wait > 0:
                # Woken by each change of the watermark; in between: is the reader still there?
                held.changed.wait(min(POLL, wait))
                entries, last = _look(held, position)
            watermark = held.machine.watermark
        if not entries and last is None and time.monotonic() < last_frame + HEARTBEAT:
            continue
        last_frame = time.monotonic()
        if last is not None:
            yield held.wire.empty, last.SerializeToString()
            return
        if not entries:
            yield held.wire.empty, pb.TailBatch(first_offset=position, watermark=watermark).SerializeToString()
            continue
        batch, header = _batch(entries, position, watermark)
        position = entries[-1].end
        yield batch, header.SerializeToString()


def _look(held: Held, position: int) -> tuple[Sequence[Entry], pb.TailBatch | None]:
    """What can be told now: entries, or the last frame, or nothing. Lock held."""
    last = _last_frame(held, position)
    return ((), last) if last is not None else (held.machine.readable(position, MAX_MESSAGE), None)


def _last_frame(held: Held, position: int) -> pb.TailBatch | None:
    """The end of the segment, or that the reader has to go to the filer first. Lock held."""
    machine = held.machine
    if machine.state is State.SEALED:
        assert machine.outcome is not None
        end = machine.outcome.end
        if position < end:
            return pb.TailBatch(first_offset=position, watermark=end, trimmed_to=end)
        sealed = outcome_to_pb(machine.outcome, only="", successors=held.successors)
        return pb.TailBatch(first_offset=position, watermark=end, sealed=sealed)
    if position < machine.tail_start:
        return pb.TailBatch(first_offset=position, watermark=machine.watermark, trimmed_to=machine.tail_start)
    return None


def _batch(entries: Sequence[Entry], position: int, watermark: int) -> tuple[pa.RecordBatch, pb.TailBatch]:
    """The rows of the entries from ``position`` on, and their runs of append times."""
    skipped = max(0, position - entries[0].first)
    rows: list[int] = []
    appended: list[int] = []
    for entry in entries:
        count = entry.end - max(position, entry.first)
        if appended and appended[-1] == entry.appended:
            rows[-1] += count
        else:
            rows.append(count)
            appended.append(entry.appended)
    header = pb.TailBatch(first_offset=position, rows=rows, appended=appended, watermark=watermark)
    return rows_of(entries, skipped), header
