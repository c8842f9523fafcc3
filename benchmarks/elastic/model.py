"""A topic under load in virtual time, with core's code: TopicReconciler, TopicLoad, Autoscaler, Placer and Fleet.

Each second the brokers take as much of the offered load as they can (the rest waits at the producers) and report their
counters. Then the operator follows Fleet, and the leader steps. Its effects are answered after given latencies, and the
range of a segment that is being sealed takes nothing. Nothing fails here; the simulation covers faults.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from benchmarks.elastic.brokers import ModelFleet, carry
from benchmarks.elastic.record import Event, Record, Sample
from benchmarks.elastic.shapes import Shape
from smq_core.model.chunk_info import SealOutcome
from smq_core.model.decision import Decision
from smq_core.model.entities import SECOND, Layout, Segment, Topic, TopicSpec
from smq_core.model.keyspace import KeyRange, covers_exactly, merge_ranges
from smq_core.reconcile.answers import (
    Answer,
    IndexAppended,
    LayoutRead,
    LayoutWritten,
    ReplicaOpened,
    Sealed,
    TailFlushed,
)
from smq_core.reconcile.effects import AppendIndex, Effect, FlushAhead, OpenReplica, PutLayout, ReadLayout
from smq_core.reconcile.topic_reconciler import TopicReconciler
from smq_core.scaling.autoscaler import TARGET_BATCHES_PER_SECOND
from smq_core.scaling.broker_fleet import FleetLoad, FleetPolicy
from smq_core.scaling.rebalancing import FOLLOWER_WEIGHT
from smq_core.scaling.segment_load import TrafficCounters
from smq_core.sealing.seal_coordinator import RequestSeal, SealFromFiler

SLICES = 64


@dataclass(frozen=True)
class Environment:
    """What surrounds the topic. Latencies are microseconds."""

    spec: TopicSpec
    fleet: FleetPolicy = field(default_factory=lambda: FleetPolicy(minimum=3, maximum=24))
    seal: int = 300_000
    """From the fence of a segment to its successors taking over."""
    store: int = 20_000
    call: int = 5_000
    broker_start: int = 20 * SECOND
    message_bytes: int = 640
    messages_per_batch: int = 500
    noisy: bool = True
    """Arrivals are a Poisson process, not a metronome."""


def spec_for(shape: Shape, **changes: object) -> TopicSpec:
    """The default topic, with the shape's partitions and target."""
    spec = TopicSpec(partitions=shape.partitions, target_messages_per_second=int(shape.target))
    if shape.name == "ten-thousand":
        spec = replace(spec, min_segments=10_000, max_segments=12_000)
    return replace(spec, **changes)  # type: ignore[arg-type]


def environment_for(shape: Shape, **changes: object) -> Environment:
    """A world that is large enough for the shape."""
    fleet = (
        FleetPolicy(minimum=500, maximum=700) if shape.name == "ten-thousand" else FleetPolicy(minimum=3, maximum=24)
    )
    return replace(Environment(spec_for(shape), fleet), **changes)  # type: ignore[arg-type]


class Model:
    """One run; ``run()`` or ``second()`` by ``second()``, then look at ``record``."""

    def __init__(
        self, shape: Shape, world: Environment, seed: int = 0, *, watch: Callable[[Model], None] | None = None
    ) -> None:
        """``watch`` is called after each second, for checks."""
        self.shape, self.world = shape, world
        self.now = 0
        self.record = Record("SeaweedMQ", shape.partitions, shape.target)
        self.brokers = ModelFleet(world.fleet, world.spec.replicas, world.broker_start)
        self.unique = map(str, itertools.count())
        self.leader = TopicReconciler(Topic("default/t", "uid", world.spec), unique=lambda: next(self.unique))
        self._rng = np.random.default_rng(seed)
        self._watch = watch
        self._answers: list[tuple[int, int, Callable[[int], None]]] = []
        self._order = itertools.count()
        self._taking: dict[str, Segment] = {}
        self._owner = np.full(shape.partitions, -1)
        self._counted = np.zeros(shape.partitions)
        self._behind = np.zeros(shape.partitions)
        self._closed: list[tuple[KeyRange, int, int]] = []
        self._ranges: dict[str, KeyRange] = {}
        self._slices = np.zeros(shape.partitions, np.int64)
        self._first_slice: dict[str, tuple[int, int]] = {}

    def run(self, seconds: int | None = None) -> Record:
        """Runs for ``seconds`` (default: those of the shape) and returns the record."""
        for _ in range(self.shape.seconds if seconds is None else seconds):
            self.second()
        return self.record

    def second(self) -> None:
        """One second: traffic, reports, the fleet, the leader; then the checks."""
        self._reconcile(self.now)
        began, self.now = self.now, self.now + SECOND
        self._traffic(began)
        self._report()
        self.brokers.follow(self._fleet_load(), self.leader.layout, self.now)
        if self._watch is not None:
            self._watch(self)

    # ---- the leader and its effects

    def _reconcile(self, now: int) -> None:
        """Steps the leader until nothing more happens before the next second."""
        until, at = now + SECOND, now
        while True:
            views = self.brokers.views(self._expected(), at)
            effects = self.leader.step(at, views)
            self._report_decisions()
            for effect in effects:
                self._answer(effect, at)
            if effects:
                continue
            if not self._answers or self._answers[0][0] >= until:
                return
            at = self._answers[0][0]
            while self._answers and self._answers[0][0] == at:
                heapq.heappop(self._answers)[2](at)

    def _expected(self) -> Layout | None:
        return self.leader.layout

    def _later(self, at: int, what: Callable[[int], None]) -> None:
        heapq.heappush(self._answers, (at, next(self._order), what))

    def _answer(self, effect: Effect, at: int) -> None:
        world = self.world
        match effect:
            case ReadLayout():
                self._handle_later(at + world.store, LayoutRead(None, None))
            case PutLayout(layout=layout):
                self._check_put(layout, at)
                self._handle_later(at + world.store, LayoutWritten(layout, str(layout.version)))
                if not self._taking:
                    for segment in layout.segments:
                        self._take(segment)
            case OpenReplica(segment=segment, replica=replica):
                self._handle_later(at + world.call, ReplicaOpened(segment.name, replica.incarnation))
            case RequestSeal(segment=name):
                self._seal(name, at)
            case SealFromFiler(segment=name):
                self._seal(name, at)
            case AppendIndex(entries=entries):
                self._handle_later(at + world.store, IndexAppended(tuple(e.name for e in entries)))
            case FlushAhead(segment=segment):
                self._handle_later(at + world.call, TailFlushed(segment.name))

    def _handle_later(self, at: int, answer: Answer) -> None:
        self._later(at, lambda t: self.leader.handle(answer, t))

    def _seal(self, name: str, at: int) -> None:
        done = at + self.world.call
        if name in self._taking:
            done = at + self.world.seal
            self._closed.append((self._taking.pop(name).range, at, done))
        self._later(done, lambda t: self._sealed(name, t))

    def _sealed(self, name: str, at: int) -> None:
        """The successors whose predecessors are all sealed take over."""
        self.leader.handle(Sealed(SealOutcome(segment=name, end=0)), at)
        layout = self.leader.layout
        assert layout is not None
        if name not in layout:
            return
        for successor in (layout.segment(n) for n in layout.segment(name).successors):
            before = [p for p in successor.predecessors if p in layout]
            if all(self.leader.outcome(p) is not None for p in before):
                self._take(successor)

    def _take(self, segment: Segment) -> None:
        if segment.name in self._ranges:
            return
        self._taking[segment.name] = segment
        self._ranges[segment.name] = segment.range
        part = slice(segment.range.start, segment.range.stop)
        self._counted[part] = 0.0

    def _report_decisions(self) -> None:
        for decision in self.leader.decisions:
            self.record.events.append(self._event(decision))
        self.leader.decisions.clear()
        for partition in self.leader.load.hot_partitions.values():
            self.record.hot.setdefault(partition, self.now // SECOND)

    def _event(self, decision: Decision) -> Event:
        ranges = [self._ranges[n] for n in decision.segments if n in self._ranges]
        whole = merge_ranges(ranges) if ranges else KeyRange(0, self.shape.partitions)
        return Event(decision.at / SECOND, decision.action, whole, len(decision.segments), decision.reason)

    # ---- the traffic

    def _traffic(self, began: int) -> None:
        world, partitions = self.world, self.shape.partitions
        offered = self.shape.at(began / SECOND)
        arrived = self._rng.poisson(offered).astype(float) if world.noisy else offered
        live = sorted(self._taking.values(), key=lambda s: s.range)
        self._place(live)
        demanded = (self._behind + arrived) * self._open_share(began)
        demanded[self._owner < 0] = 0.0
        owner = np.maximum(self._owner, 0)
        demand = np.asarray(np.bincount(owner, demanded, minlength=len(live)) * world.message_bytes, np.float64)
        ready = {m.replica.incarnation: world.fleet.bytes_per_second for m in self.brokers.ready(began)}
        load_by_broker = carry(demand, [s.replicas for s in live], ready)
        factor = np.divide(load_by_broker.segments, demand, out=np.ones(len(live)), where=demand > 0)
        accepted = demanded * factor[owner] if live else np.zeros(partitions)
        self._behind = self._behind + arrived - accepted
        self._counted += accepted
        self._sample(live, offered, accepted, load_by_broker.brokers)

    def _place(self, live: list[Segment]) -> None:
        """Which of the live segments takes each partition, and which slice of whose histogram counts it."""
        self._owner.fill(-1)
        self._first_slice = {}
        first = 0
        for i, segment in enumerate(live):
            start, stop, size = segment.range.start, segment.range.stop, len(segment.range)
            number = min(SLICES, size)
            self._owner[start:stop] = i
            self._slices[start:stop] = first + np.arange(size) * number // size
            self._first_slice[segment.name] = (first, first + number)
            first += number

    def _open_share(self, began: int) -> np.ndarray:
        """The share of the second in which each partition was not being sealed."""
        share = np.ones(self.shape.partitions)
        for range_, start, stop in self._closed:
            overlap = max(0, min(stop, self.now) - max(start, began)) / SECOND
            share[range_.start : range_.stop] -= overlap
        self._closed = [c for c in self._closed if c[2] > self.now]
        return np.maximum(share, 0.0)

    def _report(self) -> None:
        """Every primary's counters, as brokers report them each second."""
        world = self.world
        size = max((stop for _, stop in self._first_slice.values()), default=0)
        taken = self._owner >= 0
        counts = np.bincount(self._slices[taken], self._counted[taken], minlength=size).astype(np.int64)
        for name, (first, stop) in self._first_slice.items():
            slices = tuple(counts[first:stop].tolist())
            messages = sum(slices)
            report = TrafficCounters(
                messages, messages * world.message_bytes, messages // world.messages_per_batch, slices
            )
            self.leader.load.observe(name, report, self.now)

    def _fleet_load(self) -> FleetLoad:
        """What the leader knows of all brokers' work: a primary's rates, and half of them for each follower."""
        copies = {s.name: 1.0 + FOLLOWER_WEIGHT * (len(s.replicas) - 1) for s in self._taking.values()}
        known = [(load.fast, copies[n]) for n, load in self.leader.load.segments.items() if n in copies]
        return FleetLoad(sum(r.bytes * c for r, c in known), sum(r.batches * c for r, c in known))

    def _sample(self, live: list[Segment], offered: np.ndarray, accepted: np.ndarray, loads: dict[str, float]) -> None:
        spec, world = self.world.spec, self.world
        unit = min(
            spec.target_messages_per_second,
            spec.target_bytes_per_second / world.message_bytes,
            TARGET_BATCHES_PER_SECOND * world.messages_per_batch,
        )
        taken = self._owner >= 0
        pressures = np.bincount(self._owner[taken], offered[taken], minlength=len(live)) / unit
        self.record.samples.append(
            Sample(
                second=self.now // SECOND,
                offered=float(offered.sum()),
                accepted=float(accepted.sum()),
                behind=float(self._behind.sum()),
                segments=len(live),
                brokers=len(self.brokers.ready(self.now)),
                overload=float(np.maximum(pressures - 1.0, 0.0).sum()),
                pressures=tuple(pressures.tolist()),
                wide=tuple(len(s.range) > 1 for s in live),
                broker_loads=tuple(b / world.fleet.bytes_per_second for b in loads.values()),
            )
        )
        self.record.see(
            self.now // SECOND, [(s.name, s.range, p) for s, p in zip(live, pressures.tolist(), strict=True)]
        )

    # ---- the invariants

    def _check_put(self, layout: Layout, at: int) -> None:
        """Exact cover, the number of segments, and where new segments are placed. Raises AssertionError."""
        spec = self.world.spec
        last = [s for s in layout.segments if not s.successors]
        assert covers_exactly((s.range for s in last), layout.ring), "the segments that stay do not cover the ring"
        assert spec.min_segments <= len(last) or self.leader.layout is None or self._grows(last), "fewer than min"
        assert len(last) <= spec.max_segments, f"{len(last)} segments, more than {spec.max_segments}"
        known = {s.name for s in self.leader.layout.segments} if self.leader.layout is not None else set()
        views = self.brokers.views(self.leader.layout, at)
        for segment in layout.segments:
            incarnations = [r.incarnation for r in segment.replicas]
            assert len(set(incarnations)) == len(incarnations), f"{segment.name} has a replica twice"
            if segment.name not in known:
                for name in incarnations:
                    assert name in views and not views[name].draining, f"{segment.name} placed on {name}"

    def _grows(self, last: list[Segment]) -> bool:
        """True when the new layout is no smaller than the one before: the minimum is reached from below."""
        assert self.leader.layout is not None
        return len(last) >= len([s for s in self.leader.layout.segments if not s.successors])
