"""A primary's stream at a follower: batches in, the log's end out. One thread reads and writes the stream."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pyarrow as pa

from smq_broker.segments.batches import COPY_BELOW_BYTES, ENTRY_OVERHEAD_BYTES
from smq_broker.segments.hosted_segment import HostedSegment
from smq_broker.segments.payloads import PayloadSpan, compact, split_block
from smq_core.errors import InvalidRequest, SmqError, WrongIncarnation
from smq_core.replica.log_entries import BatchId, Entry, IncomingBatch, ReplicationMessage
from smq_proto.flight import parse
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import error_to_pb, producer_from_pb


def serve_primary(hosted: HostedSegment, hello: pb.ReplicaHello, reader: Any, writer: Any) -> None:
    """Returns when the primary ends the stream. Errors were sent to the primary and are raised.

    Raises WrongIncarnation when the caller is not this segment's primary, and the errors of
    ``SegmentReplica.replicate``.
    """
    primary = hosted.segment.primary
    if hosted.is_primary or hello.primary_incarnation != primary.incarnation:
        raise WrongIncarnation(
            f"{hosted.name} is replicated by {primary.incarnation} only, not by {hello.primary_incarnation}"
        )
    with hosted as machine:
        hosted.primary_stream_opened()
        end = machine.end
    try:
        same_schema = hosted.wire.check_stream(reader.schema)
        writer.write(pb.ReplicationReply(end=end, credit=hosted.credit).SerializeToString())
        while True:
            try:
                chunk = reader.read_chunk()
            except StopIteration:
                return
            message = _decode_message(hosted, chunk, same_schema)
            full = None
            with hosted as machine:
                before = machine.end
                end = machine.replicate(message)
                credit = hosted.adjust_credit(message.credit)
                if before < end and chunk.data.get_total_buffer_size() < COPY_BELOW_BYTES:
                    full = hosted.compactor.add(_payload_spans(message))
            if full is not None:
                compact(full)
            writer.write(pb.ReplicationReply(end=end, credit=credit).SerializeToString())
    except SmqError as error:
        with suppress(OSError, pa.ArrowException):  # the primary may be gone already
            writer.write(pb.ReplicationReply(end=hosted.machine.end, error=error_to_pb(error)).SerializeToString())
        raise
    except OSError as error:
        # The primary disconnected while the reply was written.
        hosted.log.info("primary.disconnected", error=str(error))
    finally:
        with hosted:
            hosted.primary_stream_closed()


def _decode_message(hosted: HostedSegment, chunk: Any, same_schema: bool) -> ReplicationMessage:
    """Raises InvalidRequest or SchemaMismatch if the chunk is not a valid message."""
    header = parse(pb.ReplicationBatch, chunk.app_metadata or b"")
    if chunk.data is None or not header.entries:
        if header.entries or (chunk.data is not None and chunk.data.num_rows):
            raise InvalidRequest("entries and rows of a replicated message belong together")
        return ReplicationMessage(header.base_offset, (), header.watermark, header.chain_end, header.credit)
    batch = hosted.wire.accept(chunk.data, same_schema)
    rows = [entry.rows for entry in header.entries]
    if sum(rows) != batch.num_rows or not all(rows):
        raise InvalidRequest(f"entries with {sum(rows)} rows came with a batch of {batch.num_rows}")
    payloads = split_block(batch, rows)
    size = batch.get_total_buffer_size()
    share = size / batch.num_rows
    entries = []
    first = header.base_offset
    for entry, payload in zip(header.entries, payloads, strict=True):
        incoming = IncomingBatch(
            id=BatchId(entry.producer, entry.epoch, entry.sequence, entry.instance),
            rows=entry.rows,
            nbytes=int(share * entry.rows) + ENTRY_OVERHEAD_BYTES,
            partition_min=entry.partition_min,
            partition_max=entry.partition_max,
            payload=payload,
        )
        inherited = None
        if entry.HasField("inherited"):
            inherited = {name: producer_from_pb(state) for name, state in entry.inherited.producers.items()}
        entries.append(Entry(first, incoming, entry.appended, tuple(entry.forgotten), inherited))
        first += entry.rows
    return ReplicationMessage(header.base_offset, tuple(entries), header.watermark, header.chain_end, header.credit)


def _payload_spans(message: ReplicationMessage) -> list[PayloadSpan]:
    return [(entry.batch.payload, entry.batch.rows) for entry in message.entries]  # type: ignore[misc]
