"""Encodes Fetch responses. kio would copy the records; here they are parts of the response as they are."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from smq_broker.kafka.protocol.cursor import INT32, unsigned_varint
from smq_broker.kafka.protocol.messages import Part
from smq_broker.kafka.protocol.response_writer import ResponseWriter

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
        writer = ResponseWriter(flexible=version >= FLEXIBLE_FROM)
        writer.write(INT32.pack(self.throttle_ms))
        if version >= SESSIONS_FROM:
            writer.write(_SESSION.pack(self.error_code, self.session_id))
        writer.write_topics(
            self.topics,
            has_ids=version >= TOPIC_IDS_FROM,
            write_partition=lambda it: _write_partition(writer, it, version),
        )
        if version >= NODES_FROM and self.nodes:
            writer.write_tag(_NODES_TAG, _encode_nodes(self.nodes))
        else:
            writer.write_no_tags()
        return writer.finish()


def _write_partition(writer: ResponseWriter, it: FetchedPartition, version: int) -> None:
    state = it.partition, it.error_code, it.high_watermark, it.last_stable_offset
    if version >= LOG_START_FROM:
        writer.write(_PARTITION.pack(*state, it.log_start_offset))
    else:
        writer.write(_OLD_PARTITION.pack(*state))
    writer.write_size(0)  # aborted transactions
    if version >= PREFERRED_REPLICA_FROM:
        writer.write(INT32.pack(it.preferred_read_replica))
    writer.write_part(it.records)
    if version >= FLEXIBLE_FROM and it.current_leader is not None:
        writer.write_tag(_LEADER_TAG, _LEADER.pack(*it.current_leader) + b"\0")
    else:
        writer.write_no_tags()


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
