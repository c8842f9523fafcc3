"""What travels through a segment's machine: batches, entries of the log, acks, messages, chunks to write.

All frozen; payloads are opaque. Offsets count messages of one segment from 0, times are microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass

from smq_core.keyspace import KeyRange
from smq_core.model import Durability, Producers
from smq_core.producers import BatchId

LARGEST_CHUNK = 64 * 1024 * 1024
"""A chunk has no more bytes of tail than this, or than ``flush_bytes`` where that is more."""


@dataclass(frozen=True, slots=True)
class Incoming:
    """A batch as a producer sent it. ``payload`` is opaque to the machine."""

    id: BatchId
    rows: int
    nbytes: int
    partition_min: int
    partition_max: int
    payload: object


@dataclass(frozen=True, slots=True)
class Entry:
    """A batch in the log: offsets ``first .. end - 1``; ``appended`` never goes back within a segment."""

    first: int
    batch: Incoming
    appended: int

    @property
    def end(self) -> int:
        return self.first + self.batch.rows


@dataclass(frozen=True, slots=True)
class Ack:
    """One batch is durable. ``stream`` is whatever the caller gave to ``append``."""

    stream: object
    id: BatchId
    first_offset: int | None


@dataclass(frozen=True, slots=True)
class ReplicationMessage:
    """Everything that waits for one follower, with the news of watermark and chain end."""

    base_offset: int
    entries: tuple[Entry, ...]
    watermark: int
    chain_end: int
    credit: int = 0
    """The follower's credit that the primary's whole tail is within; 0: it heard of another one, but is not yet."""


@dataclass(frozen=True, slots=True)
class ChunkWrite:
    """The next chunk: ``entries`` are contiguous from ``first``; ``producers`` is the state at its end."""

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
    """What is fixed for the segment's life. ``replicas`` are incarnations, the primary first; times in microseconds."""

    segment: str
    range: KeyRange
    me: str
    replicas: tuple[str, ...]
    durability: Durability
    predecessors: tuple[str, ...] = ()
    flush_bytes: int = 32 * 1024 * 1024
    flush_interval: int = 10_000_000

    @property
    def is_primary(self) -> bool:
        return self.replicas[0] == self.me

    @property
    def followers(self) -> tuple[str, ...]:
        return self.replicas[1:]
