"""A minimal producer and reader of the data plane as data.proto defines it, without the client package."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

from smq_core.errors import SmqError
from smq_core.model.entities import Column, Segment, Topic
from smq_core.model.reference import Reference
from smq_proto.error_conversion import error_from_pb
from smq_proto.flight import from_flight
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import PROTOCOL, reference_to_pb
from smq_storage.chunks.parquet_codec import message_schema
from support.waiting import HANG_GUARD

CONNECTION = [("grpc.use_local_subchannel_pool", 1)]


def rows(
    values: Sequence[bytes], *, partition: int = 0, key: bytes | None = None, columns: Sequence[Column] = ()
) -> pa.RecordBatch:
    """A wire batch of these values, all in one partition."""
    count = len(values)
    schema = message_schema(columns)
    now = time.time_ns() // 1000
    arrays = [
        pa.array([partition] * count, pa.int32()),
        pa.array([now] * count, schema.field("timestamp").type),
        pa.array([key] * count, pa.binary()),
        pa.array(list(values), pa.binary()),
        pa.nulls(count, schema.field("headers").type),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def rows_of_size(count: int, size: int, *, partition: int = 0) -> pa.RecordBatch:
    return rows([b"x" * size] * count, partition=partition)


class RawProducer:
    """One producer's session for one segment, alone on a lane. A thread reads and collects the replies."""

    SESSION = 1

    def __init__(
        self,
        address: str,
        topic: Topic,
        segment: Segment,
        *,
        name: str = "p",
        epoch: int = 1,
        instance: str = "",
        incarnation: str = "",
        schema: pa.Schema | None = None,
        connection: Sequence[tuple[str, int]] = CONNECTION,
        lane: pb.Lane = pb.LANE_BULK,
        client: fl.FlightClient | None = None,
    ) -> None:
        """``client`` is a connection to use instead of a new one without encryption."""
        hello = pb.PutOpen(
            protocol=PROTOCOL,
            uid=topic.uid,
            incarnation=incarnation or segment.primary.incarnation,
            producers=pb.ProducersHello(lane=lane),
        )
        self._port = int(address.rsplit(":", 1)[1])
        self._client = client or fl.connect(f"grpc://{address}", generic_options=list(connection))
        descriptor = fl.FlightDescriptor.for_command(hello.SerializeToString())
        self._writer, self._reader = self._client.do_put(descriptor, schema or message_schema(topic.spec.schema))
        self.changed = threading.Condition()
        self.opened: pb.ProducerReply.Opened | None = None
        self.acked: dict[int, int] = {}
        self.acked_at: dict[int, float] = {}
        self.sealed: pb.SealOutcome | None = None
        self.error: SmqError | None = None
        self.rejected: list[tuple[int, SmqError]] = []
        self.heartbeats = 0
        self.ended = False
        """The session or its lane."""
        self.next_sequence = 0
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        opening = pb.ProducerFrame.Open(
            session=self.SESSION,
            segment=segment.name,
            producer=pb.ProducerHello(producer=name, epoch=epoch, instance=instance),
        )
        with contextlib.suppress(pa.ArrowException, OSError):  # the replies say why the broker refuses the lane
            self._writer.write_metadata(pb.ProducerFrame(opens=[opening]).SerializeToString())

    def send(self, batch: pa.RecordBatch, sequence: int | None = None) -> int:
        """Writes one batch. Raises Flight's error if the stream is broken."""
        frame, sequence = self._frame(sequence, rows=batch.num_rows)
        self._writer.write_with_metadata(batch, frame.SerializeToString())
        return sequence

    def send_raw(self, batch: pa.RecordBatch, metadata: bytes) -> None:
        self._writer.write_with_metadata(batch, metadata)

    def publish(self, reference: Reference, sequence: int | None = None) -> int:
        """Publishes rows of an upload. Raises Flight's error if the stream is broken."""
        frame, sequence = self._frame(sequence, reference=reference_to_pb(reference))
        self._writer.write_metadata(frame.SerializeToString())
        return sequence

    def _frame(self, sequence: int | None, **what: Any) -> tuple[pb.ProducerFrame, int]:
        sequence = self.next_sequence if sequence is None else sequence
        self.next_sequence = sequence + 1
        frame = pb.ProducerFrame()
        frame.sub_batches.add(session=self.SESSION, sequence=sequence, rejections=len(self.rejected), **what)
        return frame, sequence

    def wait_resolved(self, sequence: int) -> None:
        """Waits until this batch is acked or rejected, or the segment accepts nothing more."""
        self._wait(lambda: sequence in self.acked or self.rejected or self.sealed or self.error or self.ended)

    def wait_opened(self) -> pb.ProducerReply.Opened:
        self._wait(lambda: self.opened is not None or self.ended)
        assert self.opened is not None, f"not opened: {self.error}"
        return self.opened

    def wait_acked(self, sequence: int) -> int:
        """The first offset of this batch."""
        self._wait(lambda: sequence in self.acked or self.ended)
        assert sequence in self.acked, f"{sequence} was not acked: {self.error or self.sealed}"
        return self.acked[sequence]

    def wait_sealed(self) -> pb.SealOutcome:
        self._wait(lambda: self.sealed is not None or self.ended)
        assert self.sealed is not None, f"not sealed: {self.error}"
        return self.sealed

    def wait_error(self) -> SmqError:
        self._wait(lambda: self.error is not None or self.ended)
        assert self.error is not None, "no error came"
        return self.error

    def close(self) -> None:
        """Ends the session and the lane."""
        try:
            self._writer.done_writing()
            self._thread.join(HANG_GUARD)
            self._writer.close()
        except (pa.ArrowException, OSError):
            pass
        self._client.close()

    def drop_connections(self) -> None:
        """Ends the connections without closing the stream, as if the process had been killed."""
        for connection in connections_to(self._port):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def _wait(self, condition: object) -> None:
        with self.changed:
            done = self.changed.wait_for(condition, HANG_GUARD)  # type: ignore[arg-type]
        assert done, f"nothing came in {HANG_GUARD:.0f} s (acked: {len(self.acked)})"

    def _read(self) -> None:
        failure: SmqError | None = None
        try:
            while (body := self._reader.read()) is not None:
                self._take_all(pb.ProducerFrameReply.FromString(body.to_pybytes()))
        except (pa.ArrowException, OSError) as error:
            failure = from_flight(error)
        with self.changed:
            self.error = self.error or failure
            self.ended = True
            self.changed.notify_all()

    def _take_all(self, frame: pb.ProducerFrameReply) -> None:
        for it in frame.sessions:
            self._take(it.reply)
        with self.changed:
            if frame.HasField("error"):
                self.error = error_from_pb(frame.error)
            self.heartbeats += not frame.sessions
            self.changed.notify_all()

    def _take(self, reply: pb.ProducerReply) -> None:
        with self.changed:
            match reply.WhichOneof("reply"):
                case "opened":
                    self.opened = reply.opened
                case "acks":
                    now = time.monotonic()
                    for sequence, offset in enumerate(reply.acks.first_offsets, reply.acks.first_sequence):
                        self.acked[sequence] = offset
                        self.acked_at[sequence] = now
                case "sealed":
                    self.sealed = reply.sealed
                    self.ended = True
                case "error":
                    self.error = error_from_pb(reply.error)
                    self.ended = True
                case "rejected":
                    self.rejected.append((reply.rejected.sequence, error_from_pb(reply.rejected.error)))
            self.changed.notify_all()


class RawReader:
    """One reader's stream. ``next`` returns (header, batch), or None at the end."""

    def __init__(
        self,
        address: str,
        topic: Topic,
        segment: Segment,
        offset: int = 0,
        *,
        incarnation: str,
        client: fl.FlightClient | None = None,
    ) -> None:
        ticket = pb.TailTicket(
            protocol=PROTOCOL, segment=segment.name, uid=topic.uid, incarnation=incarnation, from_offset=offset
        )
        self._client = client or fl.connect(f"grpc://{address}", generic_options=CONNECTION)
        self._stream = self._client.do_get(fl.Ticket(ticket.SerializeToString()))

    def next(self) -> tuple[pb.TailBatch, pa.RecordBatch] | None:
        try:
            chunk = self._stream.read_chunk()
        except StopIteration:
            return None
        return pb.TailBatch.FromString(chunk.app_metadata.to_pybytes()), chunk.data

    def until(self, offset: int) -> pa.Table:
        """All rows up to this offset. Fails if the stream ends before."""
        found = []
        at: int | None = None
        deadline = time.monotonic() + HANG_GUARD
        while at is None or at < offset:
            assert time.monotonic() < deadline, f"only {at} of {offset} came"
            frame = self.next()
            assert frame is not None, "the stream ended"
            header, batch = frame
            assert not header.HasField("trimmed_to") and not header.HasField("sealed"), str(header)
            if batch.num_rows:
                assert at is None or header.first_offset == at, f"{header.first_offset} after {at}"
                assert sum(header.rows) == batch.num_rows
                assert header.first_offset + batch.num_rows <= header.watermark
                at = header.first_offset + batch.num_rows
                found.append(batch)
        return pa.Table.from_batches(found)

    def last(self) -> pb.TailBatch:
        """The header of the last frame."""
        deadline = time.monotonic() + HANG_GUARD
        header = None
        while time.monotonic() < deadline:
            frame = self.next()
            if frame is None:
                assert header is not None
                return header
            header = frame[0]
        raise AssertionError(f"the stream went on for {HANG_GUARD:.0f} s")

    def cancel(self) -> None:
        self._stream.cancel()
        self._client.close()


def connections_to(port: int) -> list[socket.socket]:
    """This process's connections to a port."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        try:
            if not str(link.readlink()).startswith("socket:"):
                continue
            connection = socket.socket(fileno=os.dup(int(link.name)))
        except OSError:
            continue
        try:
            if connection.family in (socket.AF_INET, socket.AF_INET6) and connection.getpeername()[1] == port:
                found.append(connection)
                continue
        except OSError:
            pass
        connection.close()
    return found
