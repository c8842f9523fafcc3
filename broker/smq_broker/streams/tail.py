"""A reader's stream: the tail from an offset up to the watermark, from any replica's memory."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import pyarrow as pa

from smq_broker.access.callers import Caller, StreamQuota
from smq_broker.rows.batches import MAX_MESSAGE_BYTES
from smq_broker.rows.payloads import rows_as_batch
from smq_broker.segments.hosted_segment import CLIENT_CHECK_SECONDS, HostedSegment
from smq_broker.streams.frame_spacing import FrameSpacing
from smq_core.replica.chunk_planning import entries_of_next_chunk
from smq_core.replica.log_entries import Entry
from smq_core.replica.segment_replica import ReplicaState
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import outcome_to_pb, reference_to_pb
from smq_storage.process.locks import requires_lock

HEARTBEAT_SECONDS = 1.0

Frame = tuple[pa.RecordBatch, bytes]


def tail_frames(
    hosted: HostedSegment, position: int, context: Any, spacing: FrameSpacing, caller: Caller
) -> Iterator[Frame]:
    """Batches with their ``TailBatch``; a heartbeat each second; the last frame says ``sealed`` or ``trimmed_to``.

    A reference comes alone, without rows. Raises QuotaExceeded, and what ``Caller.recheck`` does.
    """
    with closing(caller.open_stream(hosted.topic.uid)) as quota:
        yield from _frames(hosted, position, context, spacing, caller, quota)


def _frames(
    hosted: HostedSegment, position: int, context: Any, spacing: FrameSpacing, caller: Caller, quota: StreamQuota
) -> Iterator[Frame]:
    last_frame = 0.0
    while not context.is_cancelled():
        entries: Sequence[Entry] = ()
        last: pb.TailBatch | None = None
        if (pause := quota.pause_seconds()) > 0:
            time.sleep(min(pause, CLIENT_CHECK_SECONDS))  # heartbeats and checks of the reader go on
        else:
            entries, last = _wait_for_frame(hosted, position, last_frame + HEARTBEAT_SECONDS, spacing)
        watermark = hosted.machine.watermark
        now = time.monotonic()
        if now >= caller.check_at:
            caller.recheck()
        if not entries and last is None and now < last_frame + HEARTBEAT_SECONDS:
            continue
        last_frame = now
        if last is not None:
            yield hosted.wire.empty, last.SerializeToString()
            return
        if not entries:
            spacing.mark_idle()
            yield hosted.wire.empty, pb.TailBatch(first_offset=position, watermark=watermark).SerializeToString()
            continue
        batch, header = _batch(hosted, entries, position, watermark)
        position = entries[-1].end
        spacing.sent(now)
        if quota.is_limited:
            quota.use(sum(entry.batch.nbytes for entry in entries), batch.num_rows)
        yield batch, header.SerializeToString()


def _wait_for_frame(
    hosted: HostedSegment, position: int, heartbeat_at: float, spacing: FrameSpacing
) -> tuple[Sequence[Entry], pb.TailBatch | None]:
    """What to send next. Nothing if a heartbeat is due, or if it should be checked whether the reader is gone."""
    with hosted.lock:
        entries, last = _read_available(hosted, position)
        wait = heartbeat_at - time.monotonic()
        if not entries and last is None and wait > 0:
            # Each change of the watermark ends the wait.
            hosted.changed.wait(min(CLIENT_CHECK_SECONDS, wait))
            entries, last = _read_available(hosted, position)
    hold = spacing.hold_seconds(time.monotonic(), sum(entry.batch.nbytes for entry in entries)) if entries else 0.0
    if hold > 0:
        # New messages do not end this wait: every one of them would wake every reader.
        hosted.fenced.wait(hold)
        with hosted.lock:
            entries, last = _read_available(hosted, position)
    return entries, last


@requires_lock("lock")
def _read_available(hosted: HostedSegment, position: int) -> tuple[Sequence[Entry], pb.TailBatch | None]:
    """What can be sent now: entries, the last frame, or nothing."""
    last = _last_frame(hosted, position)
    if last is not None:
        return (), last
    return entries_of_next_chunk(hosted.machine.readable(position, MAX_MESSAGE_BYTES), MAX_MESSAGE_BYTES), None


@requires_lock("lock")
def _last_frame(hosted: HostedSegment, position: int) -> pb.TailBatch | None:
    """The last frame if the segment is sealed or if the reader has to read from the filer first."""
    machine = hosted.machine
    if machine.state is ReplicaState.SEALED:
        assert machine.outcome is not None
        end = machine.outcome.end
        if position < end:
            return pb.TailBatch(first_offset=position, watermark=end, trimmed_to=end)
        outcome = replace(machine.outcome, lost=hosted.lost)
        sealed = outcome_to_pb(outcome, only="", successors=hosted.successors)
        return pb.TailBatch(first_offset=position, watermark=end, sealed=sealed)
    if position < machine.tail_start:
        return pb.TailBatch(first_offset=position, watermark=machine.watermark, trimmed_to=machine.tail_start)
    return None


def _batch(
    hosted: HostedSegment, entries: Sequence[Entry], position: int, watermark: int
) -> tuple[pa.RecordBatch, pb.TailBatch]:
    """The rows of the entries from ``position`` on, and their runs of append times; or a reference."""
    first = entries[0]
    if first.batch.reference is not None:
        reference = reference_to_pb(first.batch.reference)
        return hosted.wire.empty, pb.TailBatch(
            first_offset=first.first, appended=[first.appended], watermark=watermark, reference=reference
        )
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
    return rows_as_batch(entries, hosted.wire.empty, skipped), header
