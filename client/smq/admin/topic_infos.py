"""What the admin API says of topics and segments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from smq.admin.wire_times import time_of
from smq_core.model.loss import Loss
from smq_proto.enums import DURABILITY, PHASE, REASON
from smq_proto.v1 import admin_pb2
from smq_proto.v1 import data_pb2 as pb


@dataclass(frozen=True, slots=True)
class TopicChange:
    """One change of a topic's settings or columns, as text: ``retention.age: 7d (default) → 3d``.

    ``risk`` says what is lost by it; it is empty if nothing is.
    """

    text: str
    risk: str = ""

    def __str__(self) -> str:
        return f"{self.text}: {self.risk}" if self.risk else self.text


@dataclass(frozen=True, slots=True)
class TopicSetting:
    """One field of a topic's spec. ``field`` is its path in the manifest, such as ``retention.age``."""

    field: str
    value: str
    is_default: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedTopic:
    """The result of applying a manifest: created, configured or unchanged; with ``preview``, what it would be.

    ``before`` (empty for a new topic) and ``after`` are the topic's manifest with every field.
    """

    topic: str
    result: str
    changes: tuple[TopicChange, ...] = ()
    before: str = ""
    after: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlteredTopic:
    """The result of a change of a topic, or a preview of it. ``changes`` has an entry for each setting and column."""

    topic: str
    result: str
    """``configured``, ``unchanged`` or ``preview``"""
    schema_version: int
    schema: tuple[tuple[str, str, bool], ...]
    """(name, type, nullable) of each column of that version"""
    changes: tuple[TopicChange, ...]


@dataclass(frozen=True, slots=True)
class RecoveredTopic:
    """What a recovery found, which documents it has written (or would write), and what nobody knows, as texts."""

    found: tuple[str, ...]
    writes: tuple[str, ...]
    unknown: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TrimmedSegment:
    """A segment that a trim removed, or would. ``unread`` has the groups that skip messages: ``{group: offset}``."""

    name: str
    messages: int
    bytes: int
    unread: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class TrimmedTopic:
    """What a trim removed, or would. ``kept``: segments that stay although they may have older messages, and why."""

    removed: tuple[TrimmedSegment, ...]
    kept: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition of a topic, such as Ready, HotPartition or SealBlocked.

    ``status`` is ``True``, ``False`` or ``Unknown``, as a string like in Kubernetes.
    """

    type: str
    status: str
    reason: str
    message: str

    @property
    def is_true(self) -> bool:
        return self.status == "True"


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentInfo:
    """One segment, living or sealed. ``sealed_at`` and ``end`` are None until it is sealed.

    ``brokers`` are the names of its replicas, the primary first. ``lost`` are the acked messages that it has
    lost, or may have lost.
    """

    name: str
    number: int
    start: int
    stop: int
    phase: str
    durability: str
    brokers: tuple[str, ...]
    predecessors: tuple[str, ...]
    successors: tuple[str, ...]
    opened_because: str
    sealed_because: str
    opened_at: datetime | None
    sealed_at: datetime | None
    end: int | None
    bytes: int
    lost: Loss | None = None
    schema_version: int = 0
    """of all messages in it; older than the topic's while a change of the schema has not come to this segment"""


@dataclass(frozen=True, slots=True)
class ProblemInfo:
    """What is wrong at ``where``: a manifest, a document in the filer, or a task of the leader."""

    where: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    """One topic with its living segments. Rates are the leader's measurements."""

    name: str
    uid: str
    partitions: int
    key: str
    schema: tuple[tuple[str, str, bool], ...]
    """(name, type, nullable) of each column; empty without a schema"""
    durability: str
    segments: tuple[SegmentInfo, ...]
    sealed_segments: int
    messages_per_second: float
    bytes_per_second: float
    conditions: tuple[Condition, ...]
    layout_version: int
    paused: bool = False
    """whether autoscaling is paused"""
    schema_version: int = 0
    """counts the changes of the schema, from 0"""
    messages: int | None = None
    """how many the topic holds; None while the end of a segment is unknown"""
    ends: Mapping[str, int] = field(default_factory=dict)
    """the offset after the last readable message of each living segment, as the leader knows it"""
    kafka_name: str = ""
    """what Kafka's clients call the topic; empty if they call it by its own name"""

    @property
    def ready(self) -> bool:
        """The status of the leader's Ready condition; without one, whether there are segments."""
        for condition in self.conditions:
            if condition.type == "Ready":
                return condition.is_true
        return bool(self.segments)


def topic_changes(changes: Iterable[admin_pb2.TopicChange]) -> tuple[TopicChange, ...]:
    return tuple(TopicChange(change.text, change.risk) for change in changes)


def segment_info(s: pb.Segment) -> SegmentInfo:
    return SegmentInfo(
        name=s.name,
        number=s.number,
        start=s.start,
        stop=s.stop,
        phase=PHASE.shown(s.phase),
        durability=DURABILITY.shown(s.durability),
        brokers=tuple(r.broker for r in s.replicas),
        predecessors=tuple(s.predecessors),
        successors=tuple(s.successors),
        opened_because=REASON.shown(s.opened_because),
        sealed_because=REASON.shown(s.sealed_because),
        opened_at=time_of(s.opened_at),
        sealed_at=time_of(s.sealed_at),
        end=s.end if s.HasField("end") else None,
        bytes=s.bytes,
        lost=Loss(s.lost.start, s.lost.stop, s.lost.at_least) if s.HasField("lost") else None,
        schema_version=s.schema_version,
    )


def topic_info(t: admin_pb2.TopicList.Topic) -> TopicInfo:
    return TopicInfo(
        name=t.info.name,
        uid=t.info.uid,
        partitions=t.info.partitions,
        key=t.info.key,
        schema=tuple((c.name, c.type, c.nullable) for c in t.info.schema),
        durability=DURABILITY.shown(t.info.durability),
        segments=tuple(sorted((segment_info(s) for s in t.layout.segments), key=lambda s: (s.start, s.number))),
        sealed_segments=t.sealed_segments,
        messages_per_second=t.messages_per_second,
        bytes_per_second=t.bytes_per_second,
        conditions=tuple(Condition(c.type, c.status, c.reason, c.message) for c in t.conditions),
        layout_version=t.layout.version,
        paused=t.paused,
        schema_version=t.info.schema_version,
        kafka_name=t.info.kafka_name,
        messages=t.messages if t.HasField("messages") else None,
        ends=dict(t.ends),
    )
