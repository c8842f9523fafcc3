"""What the page shows, as JSON: topics, brokers, decisions, and the key space of one topic over time.

Times are microseconds of the leader's clock. Texts are those of ``smq`` and of the Topic's conditions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from smq_core.access.modes import SecurityMode
from smq_core.model.entities import Liveness, Micros
from smq_core.scaling.autoscaler import pressure
from smq_core.scaling.segment_load import MeasuredLoad
from smq_operator.api.admin import SMQ
from smq_operator.brokers.registry import Broker, BrokerRegistry
from smq_operator.dashboard.history import LEVELS_PER_TARGET, Column, KeyspaceHistory, column_of
from smq_operator.reconcile.decision_log import DecisionLog
from smq_operator.reconcile.topics.directory import TopicDirectory
from smq_operator.reconcile.topics.managed_topic import ManagedTopic
from smq_operator.runtime.clock import Clock
from smq_operator.status.health import HealthMonitor
from smq_operator.status.topic_conditions import ConditionStatus, ConditionType, topic_conditions
from smq_operator.status.topic_snapshot import snapshot_of
from smq_proto.v1 import data_pb2 as pb

SAMPLE_SECONDS = 2.0
MAX_DECISIONS = 100
# Of the topic that is shown; the page says how many more there are.
MAX_SEGMENTS = 500
# All other conditions are good if they are False.
GOOD_IF_TRUE = (ConditionType.READY, ConditionType.FILER_AVAILABLE, ConditionType.BALANCED)


@dataclass(frozen=True, slots=True)
class ShownLag:
    """How far one group is behind. ``seconds`` is about the age of its oldest unread message."""

    group: str
    messages: int
    seconds: float


# The lags of a topic's groups.
LagsOf: TypeAlias = Callable[[str], Iterable[ShownLag]]


def _no_lags(_: str) -> Iterable[ShownLag]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """``sample`` it regularly, or ``run`` it. Use it on the event loop."""

    topics: TopicDirectory
    registry: BrokerRegistry
    decisions: DecisionLog
    health: HealthMonitor
    clock: Clock
    not_ready_reason: Callable[[], str]
    lags_of: LagsOf = _no_lags
    security: SecurityMode = SecurityMode.DISABLED
    history: KeyspaceHistory = field(default_factory=KeyspaceHistory)

    async def run(self) -> None:
        """Samples until it is cancelled."""
        while True:
            self.sample()
            await asyncio.sleep(SAMPLE_SECONDS)

    def sample(self) -> None:
        """Takes the present state into the history."""
        columns = {name: column for name, managed in self.topics.items() if (column := _column(managed)) is not None}
        self.history.add(self.clock(), columns)

    def answer(self, topic: str | None, since: Micros = 0) -> dict[str, Any]:
        """Everything, with the key space of ``topic`` (by default the busiest) since then."""
        names = sorted(self.topics)
        chosen = topic if topic in self.topics else max(names, key=self._busyness, default=None)
        return {
            "now": self.clock(),
            "notReady": self.not_ready_reason(),
            "security": self.security,
            "topics": [self._topic(self.topics[name]) for name in names],
            "brokers": [self._broker(broker) for broker in self.registry.all()],
            "decisions": [
                {"at": it.at, "topic": it.topic, "action": it.action, "segments": it.segments, "reason": it.reason}
                for it in list(self.decisions.recent)[-MAX_DECISIONS:]
            ],
            "keyspace": self._keyspace(self.topics[chosen], since if chosen == topic else 0) if chosen else None,
        }

    def _busyness(self, name: str) -> tuple[float, int]:
        managed = self.topics[name]
        return managed.rates().bytes, len(managed.layout.segments) if managed.layout is not None else 0

    def _topic(self, managed: ManagedTopic) -> dict[str, Any]:
        rates = managed.rates()
        conditions = topic_conditions(snapshot_of(managed, self.health.issues(managed.name)), SMQ)
        return {
            "name": managed.name,
            "messagesPerSecond": rates.messages,
            "bytesPerSecond": rates.bytes,
            "segments": len(managed.layout.writable_segments) if managed.layout is not None else 0,
            "sealed": len(managed.index.sealed),
            "paused": managed.desired.paused,
            "issues": [
                {"type": c.type, "reason": c.reason, "message": c.message}
                for c in conditions
                if c.type is not ConditionType.AUTOSCALING_PAUSED
                and c.status is not (ConditionStatus.TRUE if c.type in GOOD_IF_TRUE else ConditionStatus.FALSE)
            ],
            "lags": [
                {"group": lag.group, "messages": lag.messages, "seconds": lag.seconds}
                for lag in self.lags_of(managed.name)
            ],
        }

    def _broker(self, broker: Broker) -> dict[str, Any]:
        alive = broker.liveness(self.clock())
        hosted = [segment for segment in broker.status.segments if segment.state != pb.SegmentReport.SEALED]
        return {
            "name": broker.replica.broker,
            "address": broker.replica.address,
            "zone": broker.zone,
            "state": "draining" if broker.draining and alive is Liveness.ALIVE else alive.value,
            "primaries": sum(segment.primary for segment in hosted),
            "followers": sum(not segment.primary for segment in hosted),
            "tailBytes": broker.status.tail_bytes,
            "memoryLimit": broker.status.memory_limit,
        }

    def _keyspace(self, managed: ManagedTopic, since: Micros) -> dict[str, Any]:
        layout = managed.layout
        segments = sorted(layout.segments, key=lambda s: (s.range.start, s.number)) if layout is not None else []
        return {
            "topic": managed.name,
            "partitions": managed.desired.spec.partitions,
            "levelsPerTarget": LEVELS_PER_TARGET,
            "columns": [
                {
                    "at": at,
                    "starts": list(column.starts),
                    "levels": list(column.levels),
                    "messagesPerSecond": column.rates.messages,
                    "bytesPerSecond": column.rates.bytes,
                }
                for at, column in self.history.columns(managed.name, since)
            ],
            "segments": [
                {
                    "name": segment.name,
                    "start": segment.range.start,
                    "stop": segment.range.stop,
                    "phase": segment.phase.value,
                    "brokers": [replica.broker for replica in segment.replicas],
                    "openedBecause": segment.opened_because.value,
                    "openedAt": segment.opened_at,
                    **_load(managed, segment.name),
                }
                for segment in segments[:MAX_SEGMENTS]
            ],
            "furtherSegments": max(0, len(segments) - MAX_SEGMENTS),
        }


def _column(managed: ManagedTopic) -> Column | None:
    """None for a topic that is not adopted, or has no layout yet."""
    if managed.reconciler is None or managed.layout is None:
        return None
    return column_of(managed.layout, managed.desired.spec, managed.reconciler.load.segments, managed.rates())


def _load(managed: ManagedTopic, segment: str) -> dict[str, float]:
    known = managed.reconciler.load.segments.get(segment) if managed.reconciler is not None else None
    fast = (known or MeasuredLoad()).fast
    return {
        "messagesPerSecond": fast.messages,
        "bytesPerSecond": fast.bytes,
        "load": pressure(fast, managed.desired.spec),
    }
