"""A primary's stream at a follower: batches in, the log's end out. One thread reads and writes the stream."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pyarrow as pa

from smq_broker.segments.batches import COPY_BELOW_BYTES
from smq_broker.segments.hosted_segment import HostedSegment
from smq_broker.segments.journaling import is_journal_behind, trim_journal, write_message, write_missing
from smq_broker.segments.payloads import compact, payload_spans
from smq_broker.segments.replication_messages import decode_entries
from smq_core.errors import InvalidRequest, SmqError, WrongIncarnation
from smq_core.replica.log_entries import Entry, ReplicationMessage
from smq_proto.flight import parse
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import error_to_pb


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
        end = machine.durable_end
    try:
        same_schema = hosted.wire.check_stream(reader.schema)
        writer.write(pb.ReplicationReply(end=end, credit=hosted.credit, references=True).SerializeToString())
        while True:
            try:
                chunk = reader.read_chunk()
            except StopIteration:
                return
            message, rows = _decode_message(hosted, chunk, same_schema)
            full = None
            with hosted as machine:
                before = machine.end
                grown = machine.replicate(message) > before
                end, behind = machine.durable_end, is_journal_behind(hosted)
                credit = hosted.adjust_credit(message.credit)
                if grown and chunk.data.get_total_buffer_size() < COPY_BELOW_BYTES:
                    full = hosted.compactor.add(payload_spans(message.entries))
            if behind:
                if rows is not None:
                    write_message(hosted, message, bytes(chunk.app_metadata), rows)
                else:
                    write_missing(hosted)
                end = machine.durable_end
            if full is not None:
                compact(full)
            writer.write(pb.ReplicationReply(end=end, credit=credit).SerializeToString())
            trim_journal(hosted)  # after the reply, which the primary waits for
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


def _decode_message(
    hosted: HostedSegment, chunk: Any, same_schema: bool
) -> tuple[ReplicationMessage, pa.RecordBatch | None]:
    """The message and the rows of its entries. Raises InvalidRequest or SchemaMismatch if it is not valid."""
    header = parse(pb.ReplicationBatch, chunk.app_metadata or b"")
    entries: tuple[Entry, ...] = ()
    batch = None
    if chunk.data is not None and header.entries:
        batch = hosted.wire.accept(chunk.data, same_schema)
        entries = decode_entries(header, batch)
    elif header.entries or (chunk.data is not None and chunk.data.num_rows):
        raise InvalidRequest("entries and rows of a replicated message belong together")
    message = ReplicationMessage(header.base_offset, entries, header.watermark, header.chain_end, header.credit)
    return message, batch
