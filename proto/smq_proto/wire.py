"""The model as protobuf and back. One place, so that brokers, leader and clients cannot disagree."""

from __future__ import annotations

import json
from collections.abc import Iterable

from smq_core.errors import InvalidRequest, SmqError, error_of
from smq_core.keyspace import KeyRange
from smq_core.model import (
    Column,
    Durability,
    Layout,
    Phase,
    Producers,
    ProducerState,
    Reason,
    RemovedSegment,
    Replica,
    SealedSegment,
    SealOutcome,
    Segment,
    Topic,
    TopicSpec,
)
from smq_core.numbers import Numbers
from smq_proto.v1 import data_pb2 as pb
from smq_proto.v1 import leader_pb2 as lpb

PROTOCOL = 1
OLDEST_PROTOCOL = 1


def check_protocol(version: int) -> None:
    """Raises InvalidRequest when the other side speaks a version that this one does not."""
    if not OLDEST_PROTOCOL <= version <= PROTOCOL + 1:
        raise InvalidRequest(
            f"protocol version {version} is not spoken here ({OLDEST_PROTOCOL}..{PROTOCOL}): upgrade the older side"
        )


def segment_to_pb(segment: Segment) -> pb.Segment:
    return pb.Segment(
        name=segment.name,
        number=segment.number,
        start=segment.range.start,
        stop=segment.range.stop,
        phase=segment.phase.value,
        durability=segment.durability.value,
        replicas=[pb.Replica(broker=r.broker, incarnation=r.incarnation, address=r.address) for r in segment.replicas],
        predecessors=segment.predecessors,
        successors=segment.successors,
        opened_because=segment.opened_because.value,
        sealed_because=segment.sealed_because.value if segment.sealed_because else "",
        opened_at=segment.opened_at,
    )


def segment_from_pb(message: pb.Segment) -> Segment:
    """Raises InvalidRequest when it is not a segment."""
    try:
        return Segment(
            name=message.name,
            number=message.number,
            range=KeyRange(message.start, message.stop),
            phase=Phase(message.phase),
            durability=Durability(message.durability),
            replicas=tuple(Replica(r.broker, r.incarnation, r.address) for r in message.replicas),
            predecessors=tuple(message.predecessors),
            successors=tuple(message.successors),
            opened_because=Reason(message.opened_because),
            sealed_because=Reason(message.sealed_because) if message.sealed_because else None,
            opened_at=message.opened_at,
        )
    except ValueError as error:
        raise InvalidRequest(f"not a segment: {error}") from error


def sealed_to_pb(segment: SealedSegment) -> pb.Segment:
    return pb.Segment(
        name=segment.name,
        number=segment.number,
        start=segment.range.start,
        stop=segment.range.stop,
        phase=Phase.SEALED.value,
        durability=segment.durability.value,
        predecessors=segment.predecessors,
        successors=segment.successors,
        opened_because=segment.opened_because.value,
        sealed_because=segment.sealed_because.value,
        opened_at=segment.opened_at,
        end=segment.end,
        sealed_at=segment.sealed_at,
        bytes=segment.bytes,
        lost_from=segment.lost_from,
        lost_to=segment.lost_to,
    )


def sealed_from_pb(message: pb.Segment) -> SealedSegment:
    return SealedSegment(
        name=message.name,
        number=message.number,
        range=KeyRange(message.start, message.stop),
        end=message.end,
        predecessors=tuple(message.predecessors),
        successors=tuple(message.successors),
        opened_because=Reason(message.opened_because),
        sealed_because=Reason(message.sealed_because),
        opened_at=message.opened_at,
        sealed_at=message.sealed_at,
        durability=Durability(message.durability),
        bytes=message.bytes,
        lost_from=message.lost_from if message.HasField("lost_from") else None,
        lost_to=message.lost_to if message.HasField("lost_to") else None,
    )


def removed_to_pb(numbers: Numbers, segments: Iterable[RemovedSegment]) -> lpb.HistoryReply.Removed:
    return lpb.HistoryReply.Removed(
        numbers=[lpb.HistoryReply.Range(start=start, stop=stop) for start, stop in numbers],
        segments=[pb.Segment(name=s.name, number=s.number, end=s.end) for s in segments],
    )


def removed_from_pb(message: lpb.HistoryReply.Removed) -> tuple[Numbers, dict[str, int]]:
    """The numbers of removed segments, and the ends of the last ones by name."""
    return tuple((r.start, r.stop) for r in message.numbers), {s.name: s.end for s in message.segments}


def layout_to_pb(layout: Layout) -> pb.Layout:
    return pb.Layout(
        topic=layout.topic,
        uid=layout.uid,
        partitions=layout.partitions,
        version=layout.version,
        segments=[segment_to_pb(s) for s in layout.segments],
    )


def layout_from_pb(message: pb.Layout) -> Layout:
    """``next_number`` is what it was: the newest segment leaves the layout only when it has successors in it."""
    return Layout(
        topic=message.topic,
        uid=message.uid,
        partitions=message.partitions,
        version=message.version,
        next_number=1 + max((s.number for s in message.segments), default=-1),
        segments=tuple(segment_from_pb(s) for s in message.segments),
    )


def topic_to_pb(topic: Topic) -> pb.TopicInfo:
    spec = topic.spec
    return pb.TopicInfo(
        name=topic.name,
        uid=topic.uid,
        partitions=spec.partitions,
        key=spec.key or "",
        schema=[pb.Column(name=c.name, type=c.type, nullable=c.nullable) for c in spec.schema],
        durability=spec.durability.value,
        flush_bytes=spec.flush_bytes,
        flush_interval=spec.flush_interval,
    )


def topic_from_pb(message: pb.TopicInfo) -> Topic:
    """The topic as far as brokers and clients need it; what the message lacks has its default."""
    return Topic(
        message.name,
        message.uid,
        TopicSpec(
            partitions=message.partitions,
            key=message.key or None,
            schema=tuple(Column(c.name, c.type, c.nullable) for c in message.schema),
            durability=Durability(message.durability),
            flush_bytes=message.flush_bytes,
            flush_interval=message.flush_interval,
        ),
    )


def outcome_to_pb(
    outcome: SealOutcome, *, only: str | None = None, successors: Iterable[Segment] = ()
) -> pb.SealOutcome:
    """``only``: tell this producer's state and no other."""
    told: Producers = outcome.producers
    if only is not None:
        told = {only: told[only]} if only in told else {}
    return pb.SealOutcome(
        segment=outcome.segment,
        end=outcome.end,
        producers={
            name: pb.ProducerState(epoch=s.epoch, last_sequence=s.last_sequence, recent=s.recent)
            for name, s in told.items()
        },
        lost_from=outcome.lost[0] if outcome.lost else None,
        lost_to=outcome.lost[1] if outcome.lost else None,
        successors=[segment_to_pb(s) for s in successors],
    )


def outcome_from_pb(message: pb.SealOutcome) -> SealOutcome:
    return SealOutcome(
        segment=message.segment,
        end=message.end,
        producers={
            name: ProducerState(s.epoch, s.last_sequence, tuple(s.recent)) for name, s in message.producers.items()
        },
        lost=(message.lost_from, message.lost_to) if message.HasField("lost_from") else None,
    )


def error_to_pb(error: SmqError) -> pb.Error:
    return pb.Error(code=error.code, message=error.message, details=json.dumps(error.details, default=str))


def error_from_pb(message: pb.Error) -> SmqError:
    try:
        details = json.loads(message.details) if message.details else {}
    except ValueError:
        details = {}
    return error_of(message.code, message.message, details)
