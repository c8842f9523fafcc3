"""The frozen values of the system: topics, segments, replicas, the layout, positions.

Sizes are bytes. Offsets count the messages of one segment from 0. The layout's transitions are in
``layout_transitions.py``; nothing here decides anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from smq_core.access.quotas import TopicQuota
from smq_core.model.keyspace import KeyRange, Partitioner, Ring
from smq_core.model.loss import Loss
from smq_core.model.superseded_chunks import SupersededChunks

# How far a reader has come: ``{segment: next offset}``.
Positions = Mapping[str, int]

# A time or a duration in microseconds. Times count from the Unix epoch unless a docstring names another clock.
Micros = int

MIB = 1024 * 1024
MILLISECOND: Micros = 1_000
SECOND: Micros = 1_000_000


class Durability(StrEnum):
    """When a message is acked: once every replica holds it, or once it is in the filer."""

    REPLICATED = "Replicated"
    STORED = "Stored"


class Phase(StrEnum):
    """The phases of a segment, in this order. A sealed segment never changes."""

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
    SCHEMA = "Schema"


class Liveness(StrEnum):
    """The leader's view of an incarnation.

    An unreachable one is only SUSPECT. ENDED means that its process has ended, but its journal may come back. RECOVERED
    means that a newer process of the same broker has its journal: it can seal, but nothing else. GONE needs a proof
    that process and journal are gone.
    """

    ALIVE = "alive"
    SUSPECT = "suspect"
    ENDED = "ended"
    RECOVERED = "recovered"
    GONE = "gone"

    @property
    def can_seal(self) -> bool:
        """Whether a request to seal has a receiver."""
        return self in (Liveness.ALIVE, Liveness.RECOVERED)

    @property
    def terminated(self) -> bool:
        """Whether this process certainly accepts nothing any more."""
        return self in (Liveness.ENDED, Liveness.RECOVERED, Liveness.GONE)


@dataclass(frozen=True, slots=True)
class Column:
    """One typed column of a topic with a schema. ``type`` is an Arrow type name such as ``float64``."""

    name: str
    type: str
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class TopicSchema:
    """One version of a topic's schema. ``dropped`` names the columns of former versions; no column is named so again.

    Versions count from 0. ``schema_evolution.py`` has the rules by which one version follows another. ``generation`` is
    that of the desired state that the version comes from, so that a leader with an older one does not undo it; 0 if the
    platform counts none.
    """

    version: int
    columns: tuple[Column, ...]
    dropped: tuple[str, ...] = ()
    generation: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """The desired state of a topic. Defaults are those of the Topic resource."""

    partitions: int = 1024
    partitioner: Partitioner = Partitioner.HASH
    key: str | None = None
    schema: tuple[Column, ...] = ()
    durability: Durability = Durability.REPLICATED
    replicas: int = 2
    min_segments: int = 1
    max_segments: int = 64
    target_messages_per_second: int = 50_000
    target_bytes_per_second: int = 32 * MIB
    split_after: Micros = 5 * SECOND
    merge_after: Micros = 300 * SECOND
    flush_bytes: int = 32 * MIB
    flush_interval: Micros = 10 * SECOND
    flush_max_interval: Micros | None = None
    """How far the interval stretches for a segment with little traffic; None if it does not."""
    roll_bytes: int = 8 * 1024 * MIB
    roll_age: Micros = 24 * 3600 * SECOND
    retention_age: Micros | None = 7 * 24 * 3600 * SECOND
    retention_bytes: int | None = None
    retention_keeps_unread: bool = True
    retention_abandoned_after: Micros | None = 7 * 24 * 3600 * SECOND
    delete_data: bool = False
    quotas: tuple[TopicQuota, ...] = ()
    kafka_name: str | None = None
    """What Kafka's clients call the topic; None if they call it by its own name."""
    kafka_compacts: bool = False
    """Whether Kafka's clients are told that it keeps the newest message of each key. Nothing is compacted here."""

    @property
    def ring(self) -> Ring:
        return Ring(self.partitions, self.partitioner)

    @property
    def has_kafka_offsets(self) -> bool:
        """Whether segments count the messages of each partition."""
        return self.partitioner is Partitioner.KAFKA

    @property
    def longest_flush_interval(self) -> Micros:
        """The age at which a message is written to the filer at the latest."""
        return max(self.flush_interval, self.flush_max_interval or 0)


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic. ``name`` is ``namespace/topic``; ``uid`` distinguishes it from an earlier topic of the same name."""

    name: str
    uid: str
    spec: TopicSpec

    @property
    def short_name(self) -> str:
        return self.name.rsplit("/", 1)[-1]


@dataclass(frozen=True, slots=True)
class Replica:
    """The broker incarnation that hosts, or will host, a segment's tail."""

    broker: str
    incarnation: str
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentEntry:
    """What an entry of the layout and one of the index say of a segment. The name is never used again."""

    name: str
    number: int
    range: KeyRange
    predecessors: tuple[str, ...] = ()
    successors: tuple[str, ...] = ()
    opened_because: Reason = Reason.CREATE
    opened_at: Micros = 0
    durability: Durability = Durability.REPLICATED
    schema_version: int = 0
    """The version of the topic's schema that all its messages have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment(SegmentEntry):
    """One entry of the layout. ``replicas[0]`` is the primary."""

    phase: Phase
    replicas: tuple[Replica, ...]
    sealed_because: Reason | None = None
    loss_accepted: bool = False
    """An administrator lets its seal go on, although unreachable replicas may hold more messages."""
    known_watermark: int | None = None
    """The highest known watermark at that moment, from which the leader that seals the segment reports the loss."""

    @property
    def primary(self) -> Replica:
        return self.replicas[0]


def segment_name(topic: str, range_: KeyRange, number: int) -> str:
    """``flights-0-1024-7``: the topic, the range, and a number that makes it unique for ever."""
    return f"{topic.rsplit('/', 1)[-1]}-{range_.start}-{range_.stop}-{number}"


def number_of(segment: str) -> int:
    """The number at the end of a segment's name. Raises ValueError when it has none."""
    return int(segment.rpartition("-")[2])


def range_of(segment: str) -> KeyRange:
    """The range in a segment's name. Raises ValueError when it has none."""
    *_, start, stop, _ = segment.rsplit("-", 3)
    return KeyRange(int(start), int(stop))


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedSegment(SegmentEntry):
    """One entry of the index of sealed segments, for a segment that left the layout.

    ``lost`` are the acked messages that it has lost, or may have lost. ``file_list`` is the
    name of its file list; empty while none is named, so that readers walk its chunk chain. ``superseded``
    says since when the chunks that a compaction merged are not needed any more; it may be of a former file list.
    """

    end: int
    sealed_because: Reason
    sealed_at: Micros
    bytes: int = 0
    lost: Loss | None = None
    file_list: str = ""
    superseded: SupersededChunks | None = None
    brokers: tuple[str, ...] = ()
    """The names of those that held it. Nobody else knows of messages that were acked beyond its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedSegment:
    """A segment that retention removed from the index. ``files`` is true until its files are deleted.

    ``removed_at`` is by the leader's clock, ``filer_removed_at`` by the filer's; None if an older version removed it.
    ``file_list`` is the name of its file list, as its entry had it.
    ``unread`` has the groups that had not read it to its end, ``{group: next offset}``. They learn from it what they
    lost.
    """

    name: str
    number: int
    end: int
    removed_at: Micros
    bytes: int = 0
    files: bool = True
    unread: Mapping[str, int] = field(default_factory=dict)
    file_list: str = ""
    filer_removed_at: Micros | None = None


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The pending, open and sealing segments of a topic. Only a conditional PUT changes it.

    ``version`` counts the changes. ``writer`` is unique for each PUT, so that its writer recognises it on reading back
    when the answer was lost. ``deleted`` means that the topic is deleted and no segment opens again.
    ``schemas`` has the versions of the topic's schema that segments have, oldest first; new segments have the last one.
    It is empty for a topic without a schema, and in layouts of former releases: there version 0 is the stored topic's
    schema.
    """

    topic: str
    uid: str
    partitions: int
    version: int = 0
    next_number: int = 0
    segments: tuple[Segment, ...] = ()
    writer: str = ""
    deleted: bool = False
    schemas: tuple[TopicSchema, ...] = ()

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

    @property
    def writable_segments(self) -> list[Segment]:
        """The segments that producers write to now or soon: those without successors."""
        return [s for s in self.segments if s.phase in (Phase.OPEN, Phase.PENDING) and not s.successors]
