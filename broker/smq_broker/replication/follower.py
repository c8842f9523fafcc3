"""A follower's end of replication: batches of a segment's primary in, the log's end out."""

from __future__ import annotations

import pyarrow as pa

from smq_broker.rows.blocks import COPY_BELOW_BYTES, Block
from smq_broker.rows.payloads import compact, payload_spans
from smq_broker.rows.replication_messages import decode_entries
from smq_broker.rows.small_batches import rows_of
from smq_broker.segments.hosted_segment import HostedSegment
from smq_broker.segments.journaling import is_journal_behind, write_message, write_missing
from smq_core.errors import InvalidRequest, WrongIncarnation
from smq_core.replica.log_entries import Entry, ReplicationMessage
from smq_proto.flight import parse
from smq_proto.v1 import data_pb2 as pb

NOTHING = ReplicationMessage(base_offset=0, entries=(), watermark=0, chain_end=0, credit=0)


class FollowedSegment:
    """A segment while its primary replicates it here. ``close`` it when the primary has left.

    Raises WrongIncarnation when the caller is not this segment's primary.
    """

    def __init__(self, hosted: HostedSegment, primary_incarnation: str) -> None:
        primary = hosted.segment.primary
        if hosted.is_primary or primary_incarnation != primary.incarnation:
            raise WrongIncarnation(
                f"{hosted.name} is replicated by {primary.incarnation} only, not by {primary_incarnation}"
            )
        self.hosted = hosted
        self._confirmed_credit = 0
        self._announced_credit = 0
        with hosted:
            hosted.primary_stream_opened()

    def close(self) -> None:
        with self.hosted:
            self.hosted.primary_stream_closed()

    def opened_reply(self) -> pb.ReplicationReply:
        hosted = self.hosted
        with hosted as machine:
            end = machine.durable_end
        self._announced_credit = hosted.memory.credit
        return pb.ReplicationReply(end=end, credit=hosted.memory.credit)

    def replicate(
        self, body: bytes, rows: pa.RecordBatch | None, *, same_schema: bool, encoded: bytes = b""
    ) -> pb.ReplicationReply:
        """Appends a message; ``body`` is its header. ``trim_journal`` afterwards, when the reply was sent.

        ``rows`` is None if the header has the rows, or if there are none.

        ``encoded`` are the bytes that ``rows`` were read from and refer to, if they came as such. The journal gets the
        same, and the rows need not be copied out of the network's buffers.

        Raises InvalidRequest or SchemaMismatch if it is not valid, and the errors of ``SegmentReplica.replicate``.
        """
        hosted = self.hosted
        message, block = _decode_message(hosted, body, rows, same_schema, copied=bool(encoded))
        full = None
        with hosted as machine:
            before = machine.end
            grown = machine.replicate(message) > before
            end, behind = machine.durable_end, is_journal_behind(hosted)
            self._confirmed_credit = message.credit
            credit = self._announced_credit = hosted.memory.adjust_credit(message.credit)
            if grown and block is not None and block.is_small:
                full = hosted.compactor.add(payload_spans(message.entries))
        if behind:
            if block is not None:
                write_message(hosted, message, body, b"" if rows is None else encoded or block.to_arrow())
            else:
                write_missing(hosted)
            end = machine.durable_end
        if full is not None:
            compact(full)
        return pb.ReplicationReply(end=end, credit=credit)

    def periodic_reply(self) -> pb.ReplicationReply | None:
        """The reply that announces another credit, if this broker grants another one by now than it did last.

        Raises SegmentSealed if this replica is fenced. The primary of an idle segment would not learn it otherwise.
        """
        hosted = self.hosted
        with hosted as machine:
            machine.replicate(NOTHING)
            credit = hosted.memory.adjust_credit(self._confirmed_credit)
            if credit == self._announced_credit:
                return None
            self._announced_credit = credit
            return pb.ReplicationReply(end=machine.durable_end, credit=credit)


def _decode_message(
    hosted: HostedSegment, body: bytes, rows: pa.RecordBatch | None, same_schema: bool, *, copied: bool
) -> tuple[ReplicationMessage, Block | None]:
    """The message and the rows of its entries. Raises InvalidRequest or SchemaMismatch if it is not valid."""
    header = parse(pb.ReplicationBatch, body)
    entries: tuple[Entry, ...] = ()
    block = rows_of(header, rows)
    if block is not None and header.entries:
        block = block.accept(hosted.wire, same_schema, 0 if copied else COPY_BELOW_BYTES)
        entries = decode_entries(header, block)
    elif header.entries or (block is not None and block.num_rows):
        raise InvalidRequest("entries and rows of a replicated message belong together")
    message = ReplicationMessage(
        base_offset=header.base_offset,
        entries=entries,
        watermark=header.watermark,
        chain_end=header.chain_end,
        credit=header.credit,
    )
    return message, block if entries else None
