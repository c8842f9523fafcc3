"""The nouns of the system, frozen: topics, segments, replicas, the layout, positions.

Times are microseconds since the Unix epoch. Sizes are bytes. Offsets count messages of one segment from 0.
The layout's transitions are in ``layout.py``; nothing here decides anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from smq_core.keyspace import KeyRange

Position = Mapping[str, int]
"""How far a reader has come: ``{segment: next offset}``."""

MIB = 1024 * 1024
SECOND = 1_000_000


class Durability(StrEnum):
    """When a message is acked: when every replica holds it, or when it is in the filer."""

    REPLICATED = "Replicated"
    STORED = "Stored"


class Phase(StrEnum):
    """A segment's life, in this order; a sealed segment never changes."""

    PENDING = "pending"
    OPEN = "open"
    SEALING = "sealing"
    SEALED = "sealed"


class Reason(StrEnum):
    """Why a segment was opened or sealed."""

    CREATE = "Create"
    SPLIT = "Split"
    MERGE = "Merge"
    FAILOVER = "Failover"
    DRAIN = "Drain"
    ROLL = "Roll"
    REBALANCE = "Rebalance"
    MANUAL = "Manual"


@dataclass(frozen=True, slots=True)
class Column:
    """One typed column of a topic with a schema. ``type`` is an Arrow type name such as ``float64``."""

    name: str
    type: str
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """What a topic should be: the wish. Defaults are those of the Topic resource."""

    partitions: int = 1024
    key: str | None = None
    schema: tuple[Column, ...] = ()
    durability: Durability = Durability.REPLICATED
    replicas: int = 2
    min_segments: int = 1
    max_segments: int = 64
    target_messages_per_second: int = 50_000
    target_bytes_per_second: int = 32 * MIB
    split_after: int = 5 * SECOND
    merge_after: int = 300 * SECOND
    flush_bytes: int = 32 * MIB
    flush_interval: int = 10 * SECOND
    roll_bytes: int = 8 * 1024 * MIB
    roll_age: int = 24 * 3600 * SECOND
    retention_age: int | None = 7 * 24 * 3600 * SECOND
    retention_bytes: int | None = None
    retention_keeps_unread: bool = True
    retention_abandoned_after: int | None = 7 * 24 * 3600 * SECOND
    delete_data: bool = False


@dataclass(frozen=True, slots=True)
class Topic:
    """A living topic. ``name`` is ``namespace/topic``; ``uid`` tells it from an earlier one of the same name."""

    name: str
    uid: str
    spec: TopicSpec

    @property
    def short_name(self) -> str:
        return self.name.rsplit("/", 1)[-1]


@dataclass(frozen=True, slots=True)
class Replica:
    """One start of a broker process that holds (or shall hold) a segment's tail."""

    broker: str
    incarnation: str
    address: str


@dataclass(frozen=True, slots=True)
class Segment:
    """One entry of the layout. ``replicas[0]`` is the primary. The name is never used again."""

    name: str
    number: int
    range: KeyRange
    phase: Phase
    durability: Durability
    replicas: tuple[Replica, ...]
    predecessors: tuple[str, ...] = ()
    successors: tuple[str, ...] = ()
    opened_because: Reason = Reason.CREATE
    sealed_because: Reason | None = None
    opened_at: int = 0
    loss_accepted: bool = False
    """A person lets its seal go on without what replicas hold that cannot be reached."""
    known_watermark: int | None = None
    """Up to where was known, when that was accepted, that messages were acked: whoever leads then tells the loss."""

    @property
    def primary(self) -> Replica:
        return self.replicas[0]


@dataclass(frozen=True, slots=True)
class SealedSegment:
    """One entry of the index of sealed segments: what remains to be known of a segment that left the layout."""

    name: str
    number: int
    range: KeyRange
    end: int
    predecessors: tuple[str, ...]
    successors: tuple[str, ...]
    opened_because: Reason
    sealed_because: Reason
    opened_at: int
    sealed_at: int
    durability: Durability = Durability.REPLICATED
    bytes: int = 0
    lost_from: int | None = None
    lost_to: int | None = None


@dataclass(frozen=True, slots=True)
class RemovedSegment:
    """A segment that retention took out of the index. ``files``: they are still to be deleted.

    ``unread`` says which groups had still to read it, ``{group: next offset}``: they are told what they lost.
    """

    name: str
    number: int
    end: int
    removed_at: int
    bytes: int = 0
    files: bool = True
    unread: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Layout:
    """Which segments a topic has: the pending, open and sealing ones. Changed only by one conditional PUT.

    ``version`` counts the changes. ``writer`` is unique for each PUT, so that a PUT whose answer was lost is
    recognised when it is read back. ``ended``: the topic is deleted, and no segment opens any more.
    """

    topic: str
    uid: str
    partitions: int
    version: int = 0
    next_number: int = 0
    segments: tuple[Segment, ...] = ()
    writer: str = ""
    ended: bool = False

    def segment(self, name: str) -> Segment:
        """The segment of that name. Raises KeyError when the layout has none."""
        return self._by_name[name]

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    @cached_property
    def _by_name(self) -> Mapping[str, Segment]:
        return {segment.name: segment for segment in self.segments}

    @property
    def ring(self) -> KeyRange:
        return KeyRange(0, self.partitions)


@dataclass(frozen=True, slots=True)
class ProducerState:
    """What a replica knows of one producer at one log position.

    ``recent`` holds the first offsets of the last batches, the newest last: batch ``last_sequence - i`` began at
    ``recent[-1 - i]``. It is at most ``RECENT_BATCHES`` long, which bounds the batches a producer may have in flight.
    """

    epoch: int
    last_sequence: int
    recent: tuple[int, ...]

    def first_offset(self, sequence: int) -> int | None:
        """The first offset of a batch, or None when it is not in the log or longer ago than ``recent`` reaches."""
        back = self.last_sequence - sequence
        return self.recent[-1 - back] if 0 <= back < len(self.recent) else None


RECENT_BATCHES = 64

Producers = Mapping[str, ProducerState]


@dataclass(frozen=True, slots=True)
class ChunkInfo:
    """The metadata of one chunk. The next chunk begins at ``first + rows``; a seal chunk has no rows and no next.

    ``nonce`` is unique for each attempt to write: with it a writer recognises its own object when it is read back.
    ``producers`` is the state of every live producer at the chunk's end. ``lost`` is the range of offsets that a
    seal from the filer reports as lost, when that is known. ``upload`` is the name below ``_uploads/`` of the file
    whose rows the chunk stands for, when it has none of its own; nothing writes such chunks yet, but whoever collects
    uploads looks there.
    """

    segment: str
    first: int
    rows: int
    writer: str
    nonce: str
    sealed: bool = False
    producers: Producers = field(default_factory=dict)
    lost: tuple[int, int] | None = None
    upload: str | None = None

    @property
    def end(self) -> int:
        return self.first + self.rows


@dataclass(frozen=True, slots=True)
class SealOutcome:
    """What the seal chunk fixed: the segment's end and each producer's last sequence."""

    segment: str
    end: int
    producers: Producers = field(default_factory=dict)
    lost: tuple[int, int] | None = None
