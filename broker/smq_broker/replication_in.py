"""A primary's stream at a follower: batches in, the own end out. One thread does both, so nothing is written late."""

from __future__ import annotations

from typing import Any

from smq_broker.batches import ENTRY_OVERHEAD, SMALL
from smq_broker.held import Held
from smq_broker.payloads import Place, compact, places_in
from smq_core.entries import Entry, Incoming, ReplicationMessage
from smq_core.errors import InvalidRequest, SmqError, WrongIncarnation
from smq_core.producers import BatchId
from smq_proto.flight import parse
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import error_to_pb


def serve_primary(held: Held, hello: pb.ReplicaHello, reader: Any, writer: Any) -> None:
    """Returns when the primary ends the stream, raises what it was told.

    Raises WrongIncarnation when the caller is not this segment's primary, and the errors of
    ``SegmentReplica.replicate``.
    """
    primary = held.segment.primary
    if held.is_primary or hello.primary_incarnation != primary.incarnation:
        raise WrongIncarnation(
            f"{held.name} is replicated by {primary.incarnation} only, not by {hello.primary_incarnation}"
        )
    with held as machine:
        held.primary_streams += 1
        end = machine.end
    try:
        same = held.wire.check_stream(reader.schema)
        writer.write(pb.ReplicationReply(end=end, credit=held.credit).SerializeToString())
        while True:
            try:
                chunk = reader.read_chunk()
            except StopIteration:
                return
            message = _message(held, chunk, same)
            full = None
            with held as machine:
                before = machine.end
                end = machine.replicate(message)
                credit = held.adjust_credit(message.credit)
                if before < end and chunk.data.get_total_buffer_size() < SMALL:
                    full = held.compactor.add(_places(message))
            if full is not None:
                compact(full)
            writer.write(pb.ReplicationReply(end=end, credit=credit).SerializeToString())
    except SmqError as error:
        writer.write(pb.ReplicationReply(end=held.machine.end, error=error_to_pb(error)).SerializeToString())
        raise
    except OSError as error:
        # All that is said when the primary, or the way to it, has gone while it was answered.
        held.log.info("primary.vanished", error=str(error))
    finally:
        with held:
            held.primary_streams -= 1
            held.primary_left = True


def _message(held: Held, chunk: Any, same: bool) -> ReplicationMessage:
    """Raises InvalidRequest or SchemaMismatch when it is not one."""
    header = parse(pb.ReplicationBatch, chunk.app_metadata or b"")
    if chunk.data is None or not header.entries:
        if header.entries or (chunk.data is not None and chunk.data.num_rows):
            raise InvalidRequest("entries and rows of a replicated message belong together")
        return ReplicationMessage(header.base_offset, (), header.watermark, header.chain_end, header.credit)
    batch = held.wire.accept(chunk.data, same)
    rows = [entry.rows for entry in header.entries]
    if sum(rows) != batch.num_rows or not all(rows):
        raise InvalidRequest(f"entries with {sum(rows)} rows came with a batch of {batch.num_rows}")
    payloads = places_in(batch, rows)
    size = batch.get_total_buffer_size()
    share = size / batch.num_rows
    entries = []
    first = header.base_offset
    for entry, payload in zip(header.entries, payloads, strict=True):
        incoming = Incoming(
            id=BatchId(entry.producer, entry.epoch, entry.sequence),
            rows=entry.rows,
            nbytes=int(share * entry.rows) + ENTRY_OVERHEAD,
            partition_min=entry.partition_min,
            partition_max=entry.partition_max,
            payload=payload,
        )
        entries.append(Entry(first, incoming, entry.appended))
        first += entry.rows
    return ReplicationMessage(header.base_offset, tuple(entries), header.watermark, header.chain_end, header.credit)


def _places(message: ReplicationMessage) -> list[Place]:
    return [(entry.batch.payload, entry.batch.rows) for entry in message.entries]  # type: ignore[misc]
