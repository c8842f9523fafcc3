"""A topic's reconciler with brokers and a layout in memory."""

from __future__ import annotations

import itertools
from dataclasses import replace

from smq_core.model.chunk_info import SealOutcome
from smq_core.model.entities import Layout, Liveness, Replica, Topic, TopicSpec
from smq_core.model.segment_action import SegmentAction
from smq_core.model.segment_changes import SegmentChange
from smq_core.reconcile.answers import (
    Answer,
    ChangeRequested,
    EffectFailed,
    IndexAppended,
    LayoutRead,
    LayoutWritten,
    ReplicaOpened,
    Sealed,
    TailFlushed,
)
from smq_core.reconcile.effects import AppendIndex, Effect, FlushAhead, OpenReplica, PutLayout, ReadLayout
from smq_core.reconcile.seal_progress import RELEASE_DELAY
from smq_core.reconcile.topic_reconciler import TopicReconciler
from smq_core.scaling.placement import BrokerView
from smq_core.sealing.seal_coordinator import RequestSeal, SealFromFiler


class ReconcilerHarness:
    """A leader with three brokers; ``now`` advances by a millisecond at each step."""

    def __init__(self, brokers: int = 3, **spec: object) -> None:
        self.count = itertools.count()
        topic = Topic("default/t", "uid", TopicSpec(**({"partitions": 16} | spec)))  # type: ignore[arg-type]
        self.leader = TopicReconciler(topic, unique=lambda: f"w{next(self.count)}")
        self.brokers = {f"i{i}": BrokerView(replica=Replica(f"b{i}", f"i{i}", f"h:{i}")) for i in range(brokers)}
        self.stored: Layout | None = None
        self.etag = 0
        self.now = 1_000_000

    def step(self, passed: int = 1000) -> list[Effect]:
        self.now += passed
        return self.leader.step(self.now, self.brokers)

    def handle(self, answer: Answer) -> None:
        self.leader.handle(answer, self.now)

    def fail(self, effect: Effect, error: Exception) -> None:
        self.handle(EffectFailed(effect, error))

    def request(self, action: SegmentAction, *segments: str) -> SegmentChange:
        """A user's request."""
        change = SegmentChange(action, segments)
        self.handle(ChangeRequested(change))
        return change

    def put(self, effect: PutLayout) -> None:
        self.stored, self.etag = effect.layout, self.etag + 1
        self.handle(LayoutWritten(effect.layout, str(self.etag)))

    def answer(self, effects: list[Effect]) -> None:
        """Every effect succeeds."""
        for effect in effects:
            match effect:
                case ReadLayout():
                    self.handle(LayoutRead(self.stored, str(self.etag) if self.stored else None))
                case PutLayout():
                    self.put(effect)
                case OpenReplica():
                    self.handle(ReplicaOpened(effect.segment.name, effect.replica.incarnation))
                case FlushAhead():
                    self.handle(TailFlushed(effect.segment.name))
                case RequestSeal() | SealFromFiler():
                    self.handle(Sealed(SealOutcome(segment=effect.segment, end=5)))
                case AppendIndex():
                    self.handle(IndexAppended(tuple(entry.name for entry in effect.entries)))

    def run(self, rounds: int = 20) -> list[Effect]:
        """Steps with answers until nothing is wanted; returns all effects."""
        found: list[Effect] = []
        for _ in range(rounds):
            effects = self.step() or self.step(RELEASE_DELAY)
            if not effects:
                return found
            found += effects
            self.answer(effects)
        raise AssertionError(f"it never becomes quiet: {found[-5:]}")

    def begun(self) -> ReconcilerHarness:
        self.run()
        return self

    def lose(self, name: str, how: Liveness = Liveness.GONE) -> None:
        self.brokers[name] = replace(self.brokers[name], liveness=how)

    @property
    def layout(self) -> Layout:
        assert self.leader.layout is not None
        return self.leader.layout


def kinds(effects: list[Effect]) -> list[str]:
    return [type(effect).__name__ for effect in effects]
