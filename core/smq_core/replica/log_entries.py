"""The values of the segment replica: incoming batches, log entries, acks, replication messages, chunks to write.

All are frozen, and payloads are opaque. Offsets count the messages of one segment from 0; times are microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass

from smq_core.model.entities import SECOND, Durability, Micros, Producers
from smq_core.model.keyspace import KeyRange
from smq_core.replica.producer_map import BatchId

MAX_CHUNK_BYTES = 64 * 1024 * 1024
"""A chunk takes at most this many bytes from the tail, or ``flush_bytes`` if that is more."""


@dataclass(frozen=True, slots=True)
class IncomingBatch:
    """A batch as a producer sent it. ``payload`` is opaque."""

    id: BatchId
    rows: int
    nbytes: int
    partition_min: int
    partition_max: int
    payload: object


@dataclass(frozen=True, slots=True)
class Entry:
    """A batch in the log, at offsets ``first .. end - 1``. ``appended`` never decreases within a segment."""

    first: int
    batch: IncomingBatch
    appended: Micros

    @property
    def end(self) -> int:
        return self.first + self.batch.rows


@dataclass(frozen=True, slots=True)
class Ack:
    """One batch is durable. ``stream`` is the caller's argument of ``append``."""

    stream: object
    id: BatchId
    first_offset: int | None


@dataclass(frozen=True, slots=True)
class ReplicationMessage:
    """All entries that one follower still needs, with the current watermark and chain end."""

    base_offset: int
    entries: tuple[Entry, ...]
    watermark: int
    chain_end: int
    credit: int = 0
    """The follower's credit, if the primary's whole tail fits into it; 0 while the tail exceeds a new, lower credit."""


@dataclass(frozen=True, slots=True)
class ChunkWrite:
    """The next chunk. ``entries`` are contiguous from ``first``; ``producers`` is the state at the chunk's end."""

    first: int
    entries: tuple[Entry, ...]
    producers: Producers

    @property
    def end(self) -> int:
        return self.entries[-1].end

    @property
    def rows(self) -> int:
        return self.end - self.first


@dataclass(frozen=True, slots=True)
class ReplicaConfig:
    """The settings that never change for a segment. ``replicas`` are incarnations; the first one is the primary."""

    segment: str
    range: KeyRange
    incarnation: str
    replicas: tuple[str, ...]
    durability: Durability
    predecessors: tuple[str, ...] = ()
    flush_bytes: int = 32 * 1024 * 1024
    flush_interval: Micros = 10 * SECOND

    @property
    def is_primary(self) -> bool:
        return self.replicas[0] == self.incarnation

    @property
    def followers(self) -> tuple[str, ...]:
        return self.replicas[1:]
