"""What the admin API says of brokers, of pins of readers, and of the leader's decisions and stories."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from smq.admin.wire_times import time_of
from smq_proto.enums import BROKER_STATE, DECISION_ACTION, REPLICA_STATE
from smq_proto.v1 import admin_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentLoad:
    """One segment as one of its replicas reports it. Counters start when it opens there."""

    topic: str
    segment: str
    primary: bool
    state: str
    end: int
    watermark: int
    chain_end: int
    tail_bytes: int
    messages: int
    bytes: int
    batches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerInfo:
    """One broker process. ``state`` is alive, draining or suspect (it does not answer), or one of a former process.

    Those are ended (its journal may come back), recovered (the present process of that name has its journal) and gone
    (process and journal have ended).
    """

    name: str
    incarnation: str
    address: str
    state: str
    tail_bytes: int
    memory_limit: int
    segments: tuple[SegmentLoad, ...]
    ended: str = ""
    """Why the process has ended, such as ``process 4711 ended (SIGKILL)``; empty while it may run."""
    ended_at: datetime | None = None
    """When the leader learned that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PinInfo:
    """One pin of a reader, which keeps files of removed segments. Times are by the filer's clock.

    ``expires_in_seconds`` is the time until it protects nothing unless it is renewed, 0 or less if that is over.
    ``problem`` says why it cannot be read; then it keeps all files of the topic until it is too old.
    """

    id: str
    owner: str
    age_seconds: float
    expires_in_seconds: float
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionInfo:
    """One decision of the leader, with its reason."""

    at: datetime
    topic: str
    action: str
    segments: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryEvent:
    """One effect that the leader carried out for a topic, or one answer that came back.

    ``kind`` is its type, such as OpenReplica and ReplicaOpened. ``segment`` is empty if it is about the layout.
    It happened ``times`` times, from ``at`` to ``last_at``.
    """

    at: datetime
    last_at: datetime
    times: int
    kind: str
    segment: str
    detail: str


def broker_info(b: admin_pb2.BrokerList.Broker) -> BrokerInfo:
    return BrokerInfo(
        name=b.name,
        incarnation=b.incarnation,
        address=b.address,
        state=BROKER_STATE.shown(b.state),
        tail_bytes=b.status.tail_bytes,
        memory_limit=b.status.memory_limit,
        segments=tuple(
            SegmentLoad(
                topic=s.topic,
                segment=s.segment,
                primary=s.primary,
                state=REPLICA_STATE.shown(s.state),
                end=s.end,
                watermark=s.watermark,
                chain_end=s.chain_end,
                tail_bytes=s.tail_bytes,
                messages=s.messages,
                bytes=s.bytes,
                batches=s.batches,
            )
            for s in b.status.segments
        ),
        ended=b.ended,
        ended_at=time_of(b.ended_at),
    )


def pin_info(p: admin_pb2.PinList.Pin) -> PinInfo:
    return PinInfo(
        id=p.id, owner=p.owner, age_seconds=p.age / 1e6, expires_in_seconds=p.expires_in / 1e6, problem=p.problem
    )


def story_event(e: admin_pb2.Story.Event) -> StoryEvent:
    at, last_at = time_of(e.at), time_of(e.last_at)
    assert at is not None and last_at is not None, "each event has its times"
    return StoryEvent(at=at, last_at=last_at, times=e.times, kind=e.kind, segment=e.segment, detail=e.detail)


def decision_info(d: admin_pb2.DecisionList.Decision) -> DecisionInfo:
    at = time_of(d.at)
    assert at is not None, "each decision has its time"
    action = DECISION_ACTION.shown(d.action)
    return DecisionInfo(at=at, topic=d.topic, action=action, segments=tuple(d.segments), reason=d.reason)
