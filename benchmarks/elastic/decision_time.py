"""Measures the time of ``TopicReconciler.step`` under load, for large topics and for many.

Each case is set up, runs until nothing changes, and is then measured several times: wall time and CPU time in
milliseconds, and the decisions of the step.
"""

from __future__ import annotations

import cProfile
import itertools
import pstats
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from smq_core.model.chunk_info import SealOutcome
from smq_core.model.entities import SECOND, Durability, Layout, Replica, Topic, TopicSpec
from smq_core.model.keyspace import KeyRange, split_evenly
from smq_core.model.layout_transitions import Successor, create
from smq_core.reconcile.answers import IndexAppended, LayoutWritten, ReplicaOpened, Sealed
from smq_core.reconcile.effects import OpenReplica, PutLayout
from smq_core.reconcile.topic_reconciler import TopicReconciler
from smq_core.scaling.placement import BrokerView
from smq_core.scaling.segment_load import TrafficCounters

REPETITIONS = 5


@dataclass(frozen=True)
class DecisionTime:
    """One measured case."""

    name: str
    best_ms: float
    worst_ms: float
    cpu_ms: float
    outcome: str


def brokers(count: int) -> dict[str, BrokerView]:
    """``count`` brokers in three zones, each on its own node, equally loaded."""
    return {
        f"i{n}": BrokerView(replica=Replica(f"b{n}", f"i{n}", f"h{n}:1"), node=f"n{n}", zone=f"z{n % 3}", segments=60)
        for n in range(count)
    }


def leader_of(name: str, segments: int, partitions: int, there: list[Replica]) -> TopicReconciler:
    """A leader of a topic that is open everywhere, with two reports of each segment."""
    spec = TopicSpec(partitions=partitions, min_segments=segments, max_segments=2 * segments)
    at = itertools.count()
    parts = [
        Successor(r, (there[i % len(there)], there[(i + 1) % len(there)]), Durability.REPLICATED)
        for i, r in enumerate(split_evenly(KeyRange(0, partitions), segments))
    ]
    layout = create(name, "uid", partitions, parts, now=0, writer="w")
    leader = TopicReconciler(
        Topic(name, "uid", spec), unique=lambda: str(next(at)), layout=layout, etag="1", layout_known=True
    )
    for segment in layout.segments:
        for replica in segment.replicas:
            leader.handle(ReplicaOpened(segment.name, replica.incarnation), 0)
    return leader


def report(leader: TopicReconciler, seconds: int, rate: Callable[[int], int]) -> None:
    """``seconds`` reports of each segment, the i-th at ``rate(i)`` messages/s."""
    assert leader.layout is not None
    for at in range(seconds):
        for i, segment in enumerate(leader.layout.segments):
            slices = min(64, len(segment.range))
            total = rate(i) * at
            counts = (total // slices,) * slices
            leader.load.observe(segment.name, TrafficCounters(total, total * 100, total // 100, counts), at * SECOND)


def measured(name: str, once: Callable[[], str], profile: bool) -> DecisionTime:
    times, cpu, outcome = [], [], ""
    for _ in range(REPETITIONS):
        began, worked = time.perf_counter(), time.process_time()
        outcome = once()
        times.append((time.perf_counter() - began) * 1e3)
        cpu.append((time.process_time() - worked) * 1e3)
    if profile:
        profiler = cProfile.Profile()
        profiler.runcall(once)
        pstats.Stats(profiler).sort_stats("cumulative").print_stats(14)
    return DecisionTime(name, min(times), max(times), min(cpu), outcome)


def quiet(segments: int, of_brokers: int) -> Callable[[], str]:
    """Nothing is to be done: what every round costs."""
    views = brokers(of_brokers)
    leader = leader_of("default/wide", segments, 65_536, [b.replica for b in views.values()])
    report(leader, 3, lambda i: 20_000)
    now = itertools.count(100)

    def once() -> str:
        return f"{len(leader.step(next(now) * SECOND, views))} effects"

    return once


def _to_split(segments: int, of_brokers: int, share: int) -> tuple[TopicReconciler, dict[str, BrokerView]]:
    """One in ``share`` segments has been above the line for long enough."""
    views = brokers(of_brokers)
    leader = leader_of("default/wide", segments, 65_536, [b.replica for b in views.values()])
    report(leader, 3, lambda i: 100_000 if i % share == 0 else 20_000)
    leader.step(3 * SECOND, views)
    return leader, views


def _put(leader: TopicReconciler, views: dict[str, BrokerView], now: int) -> Layout:
    return next(e.layout for e in leader.step(now, views) if isinstance(e, PutLayout))


def flooded(segments: int, of_brokers: int, share: int) -> Callable[[], str]:
    """One in ``share`` segments is to be split in this round."""
    leader, views = _to_split(segments, of_brokers, share)
    before = leader.layout

    def once() -> str:
        leader.layout_in_flight, leader.layout = None, before
        return f"{len(_put(leader, views, 60 * SECOND).segments) - segments} new segments in one PUT"

    return once


def activating(segments: int, of_brokers: int, share: int) -> Callable[[], str]:
    """One in ``share`` segments was split and is sealed: all that leaves and opens in one round."""
    leader, views = _to_split(segments, of_brokers, share)
    layout = _put(leader, views, 60 * SECOND)
    leader.handle(LayoutWritten(layout, "2"), 60 * SECOND)
    for effect in leader.step(61 * SECOND, views):
        if isinstance(effect, OpenReplica):
            leader.handle(ReplicaOpened(effect.segment.name, effect.replica.incarnation), 61 * SECOND)
    leader.step(62 * SECOND, views)
    gone = [s.name for s in layout.segments if s.successors]
    for name in gone:
        leader.handle(Sealed(SealOutcome(segment=name, end=0)), 62 * SECOND)
    leader.handle(IndexAppended(tuple(gone)), 62 * SECOND)

    def once() -> str:
        leader.layout_in_flight, leader.layout = None, layout
        return f"{len(gone)} of {len(layout.segments)} leave, {len(_put(leader, views, 63 * SECOND).segments)} stay"

    return once


def many(topics: int, segments: int, of_brokers: int) -> Callable[[], str]:
    """``topics`` topics of ``segments`` segments each: one round over all."""
    views = brokers(of_brokers)
    there = [b.replica for b in views.values()]
    leaders = [leader_of(f"default/t{n}", segments, 1024, there[n % 400 :] + there[: n % 400]) for n in range(topics)]
    for leader in leaders:
        report(leader, 3, lambda i: 20_000)
    now = itertools.count(100)

    def once() -> str:
        at = next(now) * SECOND
        return f"{sum(len(leader.step(at, views)) for leader in leaders)} effects"

    return once


def reporting(segments: int) -> Callable[[], str]:
    """A second's reports of all segments."""
    views = brokers(8)
    leader = leader_of("default/wide", segments, 65_536, [b.replica for b in views.values()])
    report(leader, 3, lambda i: 20_000)
    assert leader.layout is not None
    names = [s.name for s in leader.layout.segments]
    at = itertools.count(4)

    def once() -> str:
        now = next(at)
        for name in names:
            last = leader.load.totals[name]
            more = replace(last, messages=last.messages + 640, histogram=tuple(c + 10 for c in last.histogram))
            leader.load.observe(name, more, now * SECOND)
        return f"{len(names)} reports"

    return once


def rows(profile: bool = False) -> Iterator[DecisionTime]:
    """Every case."""
    yield measured("10,000 segments, 500 brokers: nothing to do", quiet(10_000, 500), profile)
    yield measured("10,000 segments, 500 brokers: 200 split", flooded(10_000, 500, 50), profile)
    yield measured("10,000 segments, 500 brokers: 2,000 split", flooded(10_000, 500, 5), profile)
    yield measured("10,000 segments, 500 brokers: 200 activate", activating(10_000, 500, 50), profile)
    yield measured("1,000 topics of 10 segments, 500 brokers: nothing to do", many(1_000, 10, 500), profile)
    yield measured("10,000 reports", reporting(10_000), profile)
