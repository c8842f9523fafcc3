"""Reads the tail of a segment from the memory of one of its replicas."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl

from smq.transport.flight_channel import FlightChannel
from smq.transport.reader_channels import ReaderChannels, SharedChannel
from smq_core.errors import GrantMissing, Unauthenticated, Unavailable, Unreachable
from smq_core.model.entities import Replica
from smq_proto.flight import flight_errors
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import PROTOCOL, reference_from_pb
from smq_storage.chunks.array_buffers import array_of
from smq_storage.chunks.schemas import TIMESTAMP
from smq_storage.uploads.large_values import LargeValue, find_large_values
from smq_storage.uploads.uploaded_files import ReferencedRows

# The time without a frame after which the stream is aborted; heartbeats count as frames.
UNRESPONSIVE_AFTER_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TailFrame:
    """One message of the stream. ``table`` is None in heartbeats and at the end, and if the rows are in an upload."""

    table: pa.Table | None
    first: int
    watermark: int
    referenced: ReferencedRows | None = None
    trimmed_to: int | None = None
    sealed: pb.SealOutcome | None = None
    nbytes: int = 0
    """The size of the table, in bytes."""
    large_values: Mapping[int, LargeValue] | None = None
    """The rows of the table whose values are in objects, for all readers that share the stream; None if not known."""


class TailStream:
    """One DoGet call that serves ``readers`` readers. Iterate it in one thread; any thread may ``abort`` it."""

    def __init__(self, *, segment: str, uid: str, replica: Replica, channels: ReaderChannels, readers: int = 1) -> None:
        self._segment = segment
        self._uid = uid
        self._replica = replica
        self._channels = channels
        self._readers = readers
        self._shared: SharedChannel | None = None
        self._reader: fl.FlightStreamReader | None = None
        self._aborted = False
        self._last_frame_at: float | None = None
        """None until the broker is connected."""

    def frames(self, start: int) -> Generator[TailFrame]:
        """Yields frames from offset ``start`` on, as they become durable. Raises Unavailable or the broker's error.

        One by which :func:`is_denial` is true is final: this client may not read the topic, or not any more.
        """
        ticket = pb.TailTicket(
            protocol=PROTOCOL,
            segment=self._segment,
            incarnation=self._replica.incarnation,
            from_offset=start,
            uid=self._uid,
            readers=self._readers,
        )
        shared = self._shared = self._channels.acquire(self._replica)
        channel: FlightChannel | None = None
        try:
            channel = self._channels.connect(shared)
            self._last_frame_at = time.monotonic()
            with flight_errors():
                self._reader = channel.client.do_get(fl.Ticket(ticket.SerializeToString()))
            while not self._aborted:
                with flight_errors():
                    try:
                        chunk = self._reader.read_chunk()
                    except StopIteration:
                        return
                self._last_frame_at = time.monotonic()
                shared.got_frame(self._last_frame_at)
                yield self._frame(chunk)
        except Unreachable:
            if not self._aborted:
                shared.is_broken = True  # or who reads over it has no reason to believe so
            raise
        except (GrantMissing, Unauthenticated) as error:
            failure = self._channels.recover(error, shared, channel) if channel is not None else error
            if failure is not None:
                raise failure from error
            raise Unavailable(
                f"{self._replica.broker} ended the stream, which may begin again: {error.message}"
            ) from None
        finally:
            self._end()

    def touch(self) -> None:
        """The caller read something else since the last frame, so a missing frame is not the replica's fault."""
        if self._last_frame_at is not None:
            self._last_frame_at = time.monotonic()

    def is_unresponsive(self, now: float) -> bool:
        return self._last_frame_at is not None and now - self._last_frame_at > UNRESPONSIVE_AFTER_SECONDS

    def abort(self) -> None:
        """Ends the stream at once, even while its thread reads. Repeatable.

        A call that has not begun to answer cannot be cancelled, so the connection is cut if nobody gets frames over it.
        """
        self._aborted = True
        reader, shared = self._reader, self._shared
        if reader is not None:
            with contextlib.suppress(pa.ArrowException, OSError):
                reader.cancel()
        elif shared is not None:
            shared.cut_if_unresponsive(time.monotonic())

    def _end(self) -> None:
        reader, shared = self._reader, self._shared
        self._reader = self._shared = None
        if reader is not None:
            with contextlib.suppress(pa.ArrowException, OSError):
                reader.cancel()
        if shared is not None:
            self._channels.release(shared)

    def _frame(self, chunk: fl.FlightStreamChunk) -> TailFrame:
        if chunk.app_metadata is None:
            raise Unavailable(f"{self._replica.broker} sent a batch of {self._segment} without its offsets")
        head = pb.TailBatch.FromString(chunk.app_metadata.to_pybytes())
        table, nbytes, large_values = None, 0, None
        if chunk.data is not None and chunk.data.num_rows:
            nbytes = chunk.data.get_total_buffer_size()  # a message has its own buffers, so nothing else is in them
            table = with_append_times(chunk.data, list(head.rows), list(head.appended))
            large_values = find_large_values(table)
        referenced = None
        if head.HasField("reference"):
            reference = reference_from_pb(head.reference)
            appended = next(iter(head.appended), 0)
            referenced = ReferencedRows.of(self._uid, self._segment, head.first_offset, reference, appended)
        return TailFrame(
            table=table,
            first=head.first_offset,
            watermark=head.watermark,
            referenced=referenced,
            trimmed_to=head.trimmed_to if head.HasField("trimmed_to") else None,
            sealed=head.sealed if head.HasField("sealed") else None,
            nbytes=nbytes,
            large_values=large_values,
        )


def with_append_times(batch: pa.RecordBatch, rows: list[int], appended: list[int]) -> pa.Table:
    """Returns a wire batch as a table with the columns of a chunk; the append times are run-length encoded."""
    times = np.repeat(np.array(appended, np.int64), rows)
    after = batch.schema.get_field_index("timestamp") + 1
    field = pa.field("appended", TIMESTAMP, nullable=False)
    return pa.Table.from_batches([batch.add_column(after, field, array_of(times, TIMESTAMP))])
