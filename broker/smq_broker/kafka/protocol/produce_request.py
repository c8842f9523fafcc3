"""Decodes Produce requests. kio would copy the records; here they are views of the frame."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from smq_broker.kafka.protocol.cursor import Cursor
from smq_broker.kafka.protocol.messages import ProtocolError

FLEXIBLE_FROM = 9
TOPIC_IDS_FROM = 13
# Of all topics of a request together. Each costs a few hundred bytes of memory, but only six of the frame.
MAX_PARTITIONS = 100_000


class ProducedPartition(NamedTuple):
    partition: int
    records: memoryview | None
    """Record batches, which can be written to: nobody else uses the frame."""


class ProducedTopic(NamedTuple):
    """``name`` is empty if the version has topic ids, which are None before."""

    name: str
    topic_id: UUID | None
    partitions: tuple[ProducedPartition, ...]


class ProduceRequest(NamedTuple):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: tuple[ProducedTopic, ...]


def decode_produce_request(frame: memoryview, start: int, version: int) -> ProduceRequest:
    """The body that begins at ``start``. Raises ProtocolError."""
    cursor = Cursor(frame, start, flexible=version >= FLEXIBLE_FROM)
    transactional_id = cursor.string()
    acks, timeout_ms = cursor.int16(), cursor.int32()
    topics = []
    left = MAX_PARTITIONS
    for _ in range(cursor.array_size()):
        topic = _decode_topic(cursor, version, left)
        # A topic without partitions counts, too.
        left -= max(len(topic.partitions), 1)
        topics.append(topic)
    cursor.end_structure()
    return ProduceRequest(transactional_id, acks, timeout_ms, tuple(topics))


def _decode_topic(cursor: Cursor, version: int, max_partitions: int) -> ProducedTopic:
    has_id = version >= TOPIC_IDS_FROM
    topic_id = cursor.uuid() if has_id else None
    name = "" if has_id else cursor.string()
    if name is None:
        raise ProtocolError("malformed", "the request cannot be decoded: a topic has no name")
    size = cursor.array_size()
    if max(size, 1) > max_partitions:
        raise ProtocolError("malformed", f"a request has more than {MAX_PARTITIONS} partitions")
    partitions = []
    for _ in range(size):
        partitions.append(ProducedPartition(cursor.int32(), cursor.view()))
        cursor.end_structure()
    cursor.end_structure()
    return ProducedTopic(name, topic_id, tuple(partitions))
