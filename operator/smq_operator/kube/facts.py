"""What the leader knows of one topic, as far as the API server shows it. No loads: those change every second."""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterator
from dataclasses import dataclass

from smq_core.decide import Decision
from smq_core.model import Layout, Replica, SealedSegment, TopicSpec
from smq_core.sealing import Liveness
from smq_operator.kube.steady import Steady
from smq_operator.registry import Registry
from smq_operator.topic import TopicRun

SHOWN_SEALED = 200
"""So many sealed segments of a topic are shown, the newest; the index in the filer has them all."""
AWAY_FOR = 3_000_000
BLOCKED_FOR = 1_000_000
HOT_UNTIL = 30_000_000
_Replicas = list[tuple[str, Replica]]
"""With the names of their segments."""


@dataclass(frozen=True, slots=True)
class Place:
    """A segment and one of its brokers, about which there is something to say."""

    segment: str
    broker: str


@dataclass(frozen=True, slots=True)
class Trouble:
    """What lasts of what is not as it should be. ``away``: brokers that do not answer, of segments that are written
    to. ``hot``: (segment, partition). ``blocked``: (segment, its brokers that nobody can reach)."""

    away: tuple[Place, ...] = ()
    draining: tuple[Place, ...] = ()
    hot: tuple[tuple[str, int], ...] = ()
    blocked: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """See the module's docstring. ``layout`` is None while it is not known, or there is none yet.

    ``generation`` is that of the Topic which is followed, or None while it is not yet. ``refused`` says why the wish is
    not followed, ``waits_for`` why nothing is known. ``sealed`` are the newest, ``sealed_count`` counts all.
    ``unread_by`` are groups for which segments stay that retention would remove.
    """

    name: str
    uid: str
    spec: TopicSpec
    generation: int | None = None
    layout: Layout | None = None
    sealed: tuple[SealedSegment, ...] = ()
    sealed_count: int = 0
    lost: tuple[SealedSegment, ...] = ()
    refused: str | None = None
    waits_for: str | None = None
    paused: bool = False
    unread_by: tuple[str, ...] = ()
    trouble: Trouble = Trouble()
    decision: Decision | None = None

    @property
    def namespace(self) -> str:
        return self.name.partition("/")[0]

    @property
    def short_name(self) -> str:
        return self.name.partition("/")[2]


class Watch:
    """Keeps what lasts of one topic's trouble, from one look to the next."""

    def __init__(self) -> None:
        self._away: Steady[Place] = Steady(rise=AWAY_FOR)
        self._draining: Steady[Place] = Steady()
        self._hot: Steady[tuple[str, int]] = Steady(fall=HOT_UNTIL)
        self._blocked: Steady[tuple[str, tuple[str, ...]]] = Steady(rise=BLOCKED_FOR)

    def look(self, run: TopicRun, registry: Registry, well: Container[str], now: int) -> Trouble:
        """What is to be shown now. ``well``: incarnations about which there is nothing to say."""
        leader, layout = run.leader, run.layout
        if leader is None or layout is None:
            return Trouble()
        living = [s for s in layout.segments if not s.successors]
        names = {s.name for s in living}
        hot = ((name, found.partition) for name, found in leader.load.hot.items() if name in names)
        blocked = ((name, _brokers(layout, name, block.waiting_for)) for name, block in leader.blocked.items())
        unwell = [(s.name, r) for s in living for r in s.replicas if r.incarnation not in well]
        return Trouble(
            self._away.see(_away(unwell, registry, now), now),
            self._draining.see(_draining(unwell, registry), now),
            self._hot.see(hot, now),
            self._blocked.see(blocked, now),
        )


def facts_of(
    run: TopicRun, generation: int | None, uid: str, trouble: Trouble, decision: Decision | None
) -> TopicFacts:
    """The topic as it is now. ``uid`` and ``generation`` are the Topic resource's."""
    followed = run.adopted_wish == run.wish
    return TopicFacts(
        name=run.name,
        uid=uid,
        spec=run.topic.spec if run.topic is not None else run.wish.spec,
        generation=generation,
        layout=run.layout,
        sealed=tuple(heapq.nlargest(SHOWN_SEALED, run.sealed.values(), key=lambda entry: entry.number)),
        sealed_count=len(run.sealed),
        lost=tuple(entry for entry in run.sealed.values() if entry.lost_from is not None),
        refused=run.problem if followed else None,
        waits_for=None if followed else run.problem,
        paused=run.wish.paused,
        unread_by=unread_by(run),
        trouble=trouble,
        decision=decision,
    )


def unread_by(run: TopicRun) -> tuple[str, ...]:
    return tuple(sorted({group for groups in run.held.values() for group in groups}))


def _away(unwell: _Replicas, registry: Registry, now: int) -> Iterator[Place]:
    for segment, replica in unwell:
        broker = registry.get(replica.incarnation)
        if broker is None or broker.liveness(now) is not Liveness.ALIVE:
            yield Place(segment, replica.broker)


def _draining(unwell: _Replicas, registry: Registry) -> Iterator[Place]:
    for segment, replica in unwell:
        broker = registry.get(replica.incarnation)
        if broker is not None and broker.draining:
            yield Place(segment, replica.broker)


def _brokers(layout: Layout, name: str, incarnations: tuple[str, ...]) -> tuple[str, ...]:
    """Their names; an incarnation means nothing to people."""
    if name not in layout:
        return incarnations
    return tuple(r.broker for r in layout.segment(name).replicas if r.incarnation in incarnations)
