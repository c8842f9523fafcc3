"""Encodes Fetch responses. kio would copy the records; here they are parts of the response as they are."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from smq_broker.kafka.protocol.cursor import INT16, INT32, unsigned_varint
from smq_broker.kafka.protocol.messages import Part

LOG_START_FROM = 5
SESSIONS_FROM = 7
PREFERRED_REPLICA_FROM = 11
FLEXIBLE_FROM = 12
TOPIC_IDS_FROM = 13
NODES_FROM = 16

_OLD_PARTITION = struct.Struct(">ihqq")
_PARTITION = struct.Struct(">ihqqq")
_SESSION = struct.Struct(">hi")
_LEADER = struct.Struct(">ii")
# The tags of a partition's current leader, and of the addresses of such leaders.
_LEADER_TAG = 1
_NODES_TAG = 0


class LeaderEpoch(NamedTuple):
    leader_id: int
    leader_epoch: int


class NodeAddress(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedPartition:
    partition: int
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    current_leader: LeaderEpoch | None = None
    """For a client that reads from a broker which is not the leader."""
    preferred_read_replica: int = -1
    records: Sequence[Part] = ()
    """Record batches. They must not change until the response is sent."""


class FetchedTopic(NamedTuple):
    """``name`` counts in versions without topic ids, ``topic_id`` in the others."""

    name: str
    topic_id: UUID
    partitions: Sequence[FetchedPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResponse:
    """There are no transactions here, so no partition has aborted ones."""

    topics: Sequence[FetchedTopic]
    throttle_ms: int = 0
    error_code: int = 0
    session_id: int = 0
    nodes: Sequence[NodeAddress] = ()
    """Of all current leaders in the response."""

    def encode(self, version: int) -> Sequence[Part]:
        """The body in this version of the API, 4 to 18. Records are parts as they are."""
        writer = _Writer(version)
        writer.write(INT32.pack(self.throttle_ms))
        if version >= SESSIONS_FROM:
            writer.write(_SESSION.pack(self.error_code, self.session_id))
        writer.write_size(len(self.topics))
        for topic in self.topics:
            writer.write_topic(topic)
        if version >= NODES_FROM and self.nodes:
            writer.write_tag(_NODES_TAG, _encode_nodes(self.nodes))
        else:
            writer.write_no_tags()
        return writer.finish()


class _Writer:
    def __init__(self, version: int) -> None:
        self._version = version
        self._flexible = version >= FLEXIBLE_FROM
        self._parts: list[Part] = []
        self._open = bytearray()
        """What follows the last records."""

    def write(self, encoded: bytes) -> None:
        self._open += encoded

    def write_size(self, size: int) -> None:
        """Of an array or of bytes."""
        self._open += unsigned_varint(size + 1) if self._flexible else INT32.pack(size)

    def write_no_tags(self) -> None:
        if self._flexible:
            self._open += b"\0"

    def write_tag(self, tag: int, value: bytes) -> None:
        """The only tagged field of a structure."""
        self._open += b"\x01" + unsigned_varint(tag) + unsigned_varint(len(value)) + value

    def write_topic(self, topic: FetchedTopic) -> None:
        if self._version >= TOPIC_IDS_FROM:
            self._open += topic.topic_id.bytes
        else:
            name = topic.name.encode()
            self._open += (unsigned_varint(len(name) + 1) if self._flexible else INT16.pack(len(name))) + name
        self.write_size(len(topic.partitions))
        for partition in topic.partitions:
            self._write_partition(partition)
        self.write_no_tags()

    def _write_partition(self, it: FetchedPartition) -> None:
        state = it.partition, it.error_code, it.high_watermark, it.last_stable_offset
        if self._version >= LOG_START_FROM:
            self._open += _PARTITION.pack(*state, it.log_start_offset)
        else:
            self._open += _OLD_PARTITION.pack(*state)
        self.write_size(0)  # aborted transactions
        if self._version >= PREFERRED_REPLICA_FROM:
            self._open += INT32.pack(it.preferred_read_replica)
        self.write_size(sum(map(len, it.records)))
        if it.records:
            self._parts += (self._open, *it.records)
            self._open = bytearray()
        if self._flexible and it.current_leader is not None:
            self.write_tag(_LEADER_TAG, _LEADER.pack(*it.current_leader) + b"\0")
        else:
            self.write_no_tags()

    def finish(self) -> Sequence[Part]:
        return (*self._parts, self._open)


def _encode_nodes(nodes: Sequence[NodeAddress]) -> bytes:
    encoded = bytearray(unsigned_varint(len(nodes) + 1))
    for node in nodes:
        encoded += INT32.pack(node.node_id) + _compact(node.host) + INT32.pack(node.port) + _compact(node.rack) + b"\0"
    return bytes(encoded)


def _compact(text: str | None) -> bytes:
    if text is None:
        return b"\0"
    encoded = text.encode()
    return unsigned_varint(len(encoded) + 1) + encoded
