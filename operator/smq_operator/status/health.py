"""Finds the health issues of topics that last, so that a condition does not change with every late report."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Generic, TypeVar

from smq_core.model.entities import Layout, Liveness, Replica, Segment
from smq_core.model.segment_changes import SegmentChange
from smq_core.sealing.seal_coordinator import SealBlocked
from smq_operator.brokers.registry import BrokerRegistry
from smq_operator.reconcile.topics.managed_topic import ManagedTopic
from smq_operator.runtime.problems import LeaderProblems

T = TypeVar("T")

CHECK_INTERVAL_SECONDS = 1.0
# Until then, what a new leader lacks is no health issue: it has few reports and has read few layouts.
WARM_UP_US = 5_000_000
UNAVAILABLE_AFTER_US = 3_000_000
BLOCKED_AFTER_US = 1_000_000
# A primary that acks nothing for this time is not available for producers. Slow disks and failovers take less.
STALLED_SECONDS = 10.0
# A single failed write is repeated, and no outage.
FILER_FAILS_AFTER_US = 5_000_000
# Where the leader's problems name an outage.
FILER = "filer"
HOT_CLEARS_AFTER_US = 30_000_000
WITHHELD_CLEARS_AFTER_US = 30_000_000
# Replicas with the names of their segments.
_Replicas = list[tuple[str, Replica]]


@dataclass(frozen=True, slots=True)
class AffectedReplica:
    """A segment and the broker of its replica that has a health issue."""

    segment: str
    broker: str


@dataclass(frozen=True, slots=True)
class FilerOutage:
    """The filer does not take writes. ``leader`` and ``brokers`` (name, problem) say who meets it, and how.

    ``since`` is in microseconds of the leader's clock.
    """

    since: int
    leader: str
    brokers: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthIssues:
    """The health issues of one topic that last.

    ``unavailable``: replicas of living segments whose broker does not report. ``draining``: replicas on brokers that
    are being drained. ``hot``: (segment, partition). ``blocked``: (segment, the names of its unreachable brokers).
    ``awaited``: those of these brokers whose process has ended, and whose journal may come back.
    ``journals``: brokers that host the topic without a journal, and why.
    ``withheld``: the splits and merges that load calls for while autoscaling is paused.
    ``stalled``: primaries that have acked nothing for long although producers wait. ``filer``: an outage of the filer.
    ``quotas_ignored``: the topic has quotas, and the release knows no identities.
    """

    unavailable: tuple[AffectedReplica, ...] = ()
    draining: tuple[AffectedReplica, ...] = ()
    hot: tuple[tuple[str, int], ...] = ()
    blocked: tuple[tuple[str, tuple[str, ...]], ...] = ()
    awaited: tuple[str, ...] = ()
    journals: tuple[tuple[str, str], ...] = ()
    withheld: tuple[str, ...] = ()
    stalled: tuple[AffectedReplica, ...] = ()
    filer: FilerOutage | None = None
    quotas_ignored: bool = False


NO_ISSUES = HealthIssues()


class HealthMonitor:
    """Checks every topic once a second. It is the only source of health issues, so that all who show them agree.

    ``is_open``: the release has no security. ``warm_up_us`` counts from the start of ``run``, since a process may stand
    by for long before it leads.
    """

    def __init__(
        self,
        *,
        topics: Mapping[str, ManagedTopic],
        registry: BrokerRegistry,
        clock: Callable[[], int],
        warm_up_us: int = WARM_UP_US,
        leader_filer_problem: Callable[[], str] = lambda: "",
        problems: LeaderProblems | None = None,
        is_open: bool = False,
    ) -> None:
        self._topics = topics
        self._registry = registry
        self._clock = clock
        self.warm_up_us = warm_up_us
        self._leader_filer_problem = leader_filer_problem
        self._problems = problems
        self._is_open = is_open
        self._filer_failing_since: int | None = None
        self.filer: FilerOutage | None = None
        self._started_at: int | None = None
        self._trackers: dict[str, HealthTracker] = {}
        self._issues: dict[str, HealthIssues] = {}

    @property
    def warmed_up(self) -> bool:
        """Whether this leader has led for long enough to call what it lacks a health issue."""
        return self._started_at is not None and self._clock() - self._started_at >= self.warm_up_us

    def issues(self, topic: str) -> HealthIssues:
        """The issues of that topic (full name) at the last check."""
        return self._issues.get(topic, NO_ISSUES)

    async def run(self) -> None:
        """Runs until it is cancelled."""
        if self._started_at is None:
            self._started_at = self._clock()
        while True:
            self.check()
            await asyncio.sleep(CHECK_INTERVAL_SECONDS)

    def check(self) -> None:
        """Checks every topic now."""
        now, topics = self._clock(), self._topics
        for name in [name for name in self._trackers if name not in topics]:
            del self._trackers[name]
            self._issues.pop(name, None)
        self._check_filer(now)
        if not self.warmed_up:
            return
        healthy = self._registry.healthy_incarnations(now)
        stalled = self._registry.stalled_segments(now, STALLED_SECONDS)
        for name, managed in topics.items():
            tracker = self._trackers.setdefault(name, HealthTracker())
            found = tracker.update(managed, self._registry, healthy, now, stalled)
            ignored = self._is_open and managed.topic is not None and bool(managed.topic.spec.quotas)
            self._issues[name] = replace(found, filer=self.filer, quotas_ignored=ignored)

    def _check_filer(self, now: int) -> None:
        """Compares what the leader and the brokers meet at the filer."""
        leader, brokers = self._leader_filer_problem(), self._registry.filer_problems(now)
        if not leader and not brokers:
            self._filer_failing_since = self.filer = None
        else:
            longest = max((seconds for _, _, seconds in brokers), default=0.0)
            if self._filer_failing_since is None:
                self._filer_failing_since = now - round(longest * 1e6)
            if now - self._filer_failing_since >= FILER_FAILS_AFTER_US:
                named = tuple((name, problem) for name, problem, _ in brokers)
                self.filer = FilerOutage(self._filer_failing_since, leader, named)
        if self._problems is not None:
            if self.filer is not None:
                self._problems.report(FILER, describe_outage(self.filer))
            else:
                self._problems.clear(FILER)


class HealthTracker:
    """Tracks the health issues of one topic from check to check."""

    def __init__(self) -> None:
        self._unavailable: Debouncer[AffectedReplica] = Debouncer(raise_after_us=UNAVAILABLE_AFTER_US)
        self._draining: Debouncer[AffectedReplica] = Debouncer()
        self._hot: Debouncer[tuple[str, int]] = Debouncer(clear_after_us=HOT_CLEARS_AFTER_US)
        self._blocked: Debouncer[tuple[str, tuple[str, ...]]] = Debouncer(raise_after_us=BLOCKED_AFTER_US)
        self._withheld: Debouncer[str] = Debouncer(clear_after_us=WITHHELD_CLEARS_AFTER_US)

    def update(
        self,
        managed: ManagedTopic,
        registry: BrokerRegistry,
        healthy: Container[str],
        now: int,
        stalled: Container[tuple[str, str, str]] = (),
    ) -> HealthIssues:
        """The issues that last now. ``healthy``: incarnations that are alive and not draining.

        ``stalled``: (incarnation, uid, segment) of primaries that ack nothing.
        """
        reconciler, layout = managed.reconciler, managed.layout
        if reconciler is None or layout is None:
            return NO_ISSUES
        living = [s for s in layout.segments if not s.successors]
        names = {s.name for s in living}
        hot = ((name, partition) for name, partition in reconciler.load.hot_partitions.items() if name in names)
        blocked = ((name, _brokers(layout, name, block.waiting_for)) for name, block in reconciler.blocked.items())
        shown = self._blocked.update(blocked, now)
        unhealthy = [(s.name, r) for s in living for r in s.replicas if r.incarnation not in healthy]
        return HealthIssues(
            unavailable=self._unavailable.update(_unavailable(unhealthy, registry, now), now),
            draining=self._draining.update(_draining(unhealthy, registry), now),
            hot=self._hot.update(hot, now),
            blocked=shown,
            awaited=_awaited(reconciler.blocked.values(), registry) if shown else (),
            journals=_journal_problems(living, registry, now),
            withheld=self._withheld.update(map(_describe, reconciler.load.withheld_changes), now),
            stalled=tuple(
                AffectedReplica(s.name, s.primary.broker)
                for s in living
                if (s.primary.incarnation, layout.uid, s.name) in stalled
            ),
        )


def describe_outage(outage: FilerOutage) -> str:
    """Who cannot write to the filer since when, what waits for it, and what to do."""
    since = datetime.fromtimestamp(outage.since / 1e6, UTC).strftime("%H:%M:%S UTC")
    met = [f"the leader: {outage.leader}"] if outage.leader else []
    met += [f"broker {name}: {problem}" for name, problem in outage.brokers[:3]]
    more = f" and {len(outage.brokers) - 3} more brokers" if len(outage.brokers) > 3 else ""
    return (
        f"the filer takes no writes since {since} ({'; '.join(met)}{more}). Replicated topics accept messages until "
        "the brokers' memory is full, Stored ones ack nothing; new topics, splits, failovers, seals and commits of "
        "groups wait. Look at the filer, its disk and its credentials"
    )


class Debouncer(Generic[T]):
    """Reports an item once it has been seen for ``raise_after_us``, until it has not been seen for ``clear_after_us``.

    Both are microseconds.
    """

    def __init__(self, *, raise_after_us: int = 0, clear_after_us: int = 0) -> None:
        self._raise_after_us, self._clear_after_us = raise_after_us, clear_after_us
        self._seen: dict[T, tuple[int, int]] = {}
        self._active: dict[T, None] = {}

    def update(self, items: Iterable[T], now: int) -> tuple[T, ...]:
        """Takes the items that are seen now; returns those to report, the longest reported first."""
        items = tuple(items)
        if not (items or self._seen or self._active):
            return ()
        for item in items:
            self._seen[item] = (self._seen.get(item, (now, now))[0], now)
        for item, (first, last) in list(self._seen.items()):
            if last < now and (now - last >= self._clear_after_us or item not in self._active):
                del self._seen[item]
                self._active.pop(item, None)
            elif now - first >= self._raise_after_us:
                self._active[item] = None
        return tuple(self._active)


def _unavailable(unhealthy: _Replicas, registry: BrokerRegistry, now: int) -> Iterator[AffectedReplica]:
    for segment, replica in unhealthy:
        broker = registry.get(replica.incarnation)
        if broker is None or broker.liveness(now) is not Liveness.ALIVE:
            yield AffectedReplica(segment, replica.broker)


def _draining(unhealthy: _Replicas, registry: BrokerRegistry) -> Iterator[AffectedReplica]:
    for segment, replica in unhealthy:
        broker = registry.get(replica.incarnation)
        if broker is not None and broker.draining:
            yield AffectedReplica(segment, replica.broker)


def _awaited(blocked: Iterable[SealBlocked], registry: BrokerRegistry) -> tuple[str, ...]:
    """The brokers whose process has ended, and whose journal is waited for."""
    waiting = (registry.get(incarnation) for block in blocked for incarnation in block.waiting_for)
    return tuple(sorted({b.replica.broker for b in waiting if b is not None and b.terminated is not None}))


def _journal_problems(living: Iterable[Segment], registry: BrokerRegistry, now: int) -> tuple[tuple[str, str], ...]:
    """The brokers of these segments that continue without a journal, and why."""
    problems = registry.journal_problems(now)
    if not problems:
        return ()
    hosts = {r.incarnation: r.broker for s in living for r in s.replicas}
    return tuple(sorted((hosts[name], problem) for name, problem in problems.items() if name in hosts))


def _brokers(layout: Layout, name: str, incarnations: tuple[str, ...]) -> tuple[str, ...]:
    """The brokers' names, since a user cannot tell what an incarnation is."""
    if name not in layout:
        return incarnations
    return tuple(r.broker for r in layout.segment(name).replicas if r.incarnation in incarnations)


def _describe(change: SegmentChange) -> str:
    """The change without rates and boundaries, which differ from check to check."""
    return f"a {change.action} of {', '.join(change.segments)}"
