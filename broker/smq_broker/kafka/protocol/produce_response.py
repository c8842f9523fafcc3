"""Encodes Produce responses. A client may wait for one after each message, and kio takes long to build one."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from smq_broker.kafka.protocol.cursor import INT32
from smq_broker.kafka.protocol.messages import Part
from smq_broker.kafka.protocol.produce_request import FLEXIBLE_FROM, TOPIC_IDS_FROM
from smq_broker.kafka.protocol.response_writer import ResponseWriter

LOG_START_FROM = 5
REASONS_FROM = 8

# Index, error code, base offset and append time.
_PARTITION = struct.Struct(">ihqq")
_OFFSET = struct.Struct(">q")
# Producers set the times of records here, not brokers; and a client needs no start of the log.
_NONE = -1


class RecordFailure(NamedTuple):
    record: int
    """Its place in the batch."""
    message: str


class AppendedPartition(NamedTuple):
    partition: int
    error_code: int = 0
    base_offset: int = -1
    record_errors: Sequence[RecordFailure] = ()
    """Records for which a batch was refused."""
    error_message: str | None = None


class AppendedTopic(NamedTuple):
    """``name`` counts in versions without topic ids, ``topic_id`` in the others."""

    name: str
    topic_id: UUID | None
    partitions: Sequence[AppendedPartition]


class ProduceResponse(NamedTuple):
    topics: Sequence[AppendedTopic]
    throttle_ms: int = 0

    def encode(self, version: int) -> Sequence[Part]:
        """The body in this version of the API, 3 to 13."""
        writer = ResponseWriter(flexible=version >= FLEXIBLE_FROM)
        writer.write_topics(
            self.topics,
            has_ids=version >= TOPIC_IDS_FROM,
            write_partition=lambda it: _write_partition(writer, it, version),
        )
        writer.write(INT32.pack(self.throttle_ms))
        writer.write_no_tags()
        return writer.finish()


def _write_partition(writer: ResponseWriter, it: AppendedPartition, version: int) -> None:
    writer.write(_PARTITION.pack(it.partition, it.error_code, it.base_offset, _NONE))
    if version >= LOG_START_FROM:
        writer.write(_OFFSET.pack(_NONE))
    if version >= REASONS_FROM:
        writer.write_size(len(it.record_errors))
        for failure in it.record_errors:
            writer.write(INT32.pack(failure.record))
            writer.write_text(failure.message)
            writer.write_no_tags()
        writer.write_text(it.error_message)
    writer.write_no_tags()
