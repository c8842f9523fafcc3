"""The tail of a segment from the memory of one of its replicas."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl

from smq.channel import Channel
from smq.network import Network
from smq_core.errors import Unavailable
from smq_core.model import Replica
from smq_proto.flight import flight_errors
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import PROTOCOL
from smq_storage.schemas import TIMESTAMP

SILENT_AFTER = 2.0
"""Seconds without any frame, heartbeats included, after which a replica is given up."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One message of the stream. ``table`` is None in heartbeats and at the end."""

    table: pa.Table | None
    first: int
    watermark: int
    trimmed_to: int | None = None
    sealed: pb.SealOutcome | None = None


class TailStream:
    """One DoGet. Iterate it in one thread; ``abort`` from any."""

    def __init__(self, segment: str, uid: str, replica: Replica, schema: pa.Schema, network: Network) -> None:
        self._segment = segment
        self._uid = uid
        self._replica = replica
        self._schema = schema
        self._network = network
        self._channel: Channel | None = None
        self._reader: fl.FlightStreamReader | None = None
        self._aborted = False
        self._heard = time.monotonic()

    def frames(self, start: int) -> Iterator[Frame]:
        """From offset ``start`` to the watermark and on. Raises Unavailable, or what the broker answered."""
        ticket = pb.TailTicket(
            protocol=PROTOCOL,
            segment=self._segment,
            incarnation=self._replica.incarnation,
            from_offset=start,
            uid=self._uid,
        )
        try:
            self._channel = Channel.open(self._replica.address, self._network)
            self._heard = time.monotonic()
            with flight_errors():
                self._reader = self._channel.client.do_get(fl.Ticket(ticket.SerializeToString()))
            while not self._aborted:
                with flight_errors():
                    try:
                        chunk = self._reader.read_chunk()
                    except StopIteration:
                        return
                self._heard = time.monotonic()
                yield self._frame(chunk)
        finally:
            self.close()

    def silent(self, now: float) -> bool:
        return self._channel is not None and now - self._heard > SILENT_AFTER

    def abort(self) -> None:
        """Ends the stream at once, whatever its thread is doing. Repeatable."""
        self._aborted = True
        reader, channel = self._reader, self._channel
        if reader is not None:
            with contextlib.suppress(pa.ArrowException, OSError):
                reader.cancel()
        if channel is not None:
            channel.abort()

    def close(self) -> None:
        reader, channel = self._reader, self._channel
        self._reader = self._channel = None
        if reader is not None:
            with contextlib.suppress(pa.ArrowException, OSError):
                reader.cancel()
        if channel is not None:
            channel.close()

    def _frame(self, chunk: fl.FlightStreamChunk) -> Frame:
        if chunk.app_metadata is None:
            raise Unavailable(f"{self._replica.broker} sent a batch of {self._segment} without its offsets")
        head = pb.TailBatch.FromString(chunk.app_metadata.to_pybytes())
        table = None
        if chunk.data is not None and chunk.data.num_rows:
            table = stamped(chunk.data, list(head.rows), list(head.appended), self._schema)
        return Frame(
            table,
            head.first_offset,
            head.watermark,
            head.trimmed_to if head.HasField("trimmed_to") else None,
            head.sealed if head.HasField("sealed") else None,
        )


def stamped(batch: pa.RecordBatch, rows: list[int], appended: list[int], schema: pa.Schema) -> pa.Table:
    """A wire batch with its append times, given in runs, as a table of the chunk's schema."""
    times = np.repeat(np.array(appended, np.int64), rows)
    columns = list(batch.columns)
    columns.insert(schema.get_field_index("appended"), pa.array(times).view(TIMESTAMP))
    return pa.Table.from_batches([pa.RecordBatch.from_arrays(columns, schema=schema)])
