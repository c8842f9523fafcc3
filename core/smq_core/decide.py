"""Which segments are to be sealed now, why, and what succeeds them: one round over one topic's layout.

Every rule ends in the same thing, a ``SealPlan``. Order matters: a segment is planned at most once a round, by the
first rule that wants it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from smq_core.autoscale import Change, HotPartition, Merge, Split
from smq_core.keyspace import KeyRange, even_split, union
from smq_core.layout import SealPlan, Successor
from smq_core.model import Durability, Layout, Phase, Reason, Replica, Segment, TopicSpec
from smq_core.placement import BrokerView, Placer
from smq_core.rebalance import Move
from smq_core.sealing import Liveness

DRAIN_SHARE = 4
"""At most one in so many of a topic's segments moves off a draining broker at a time."""


@dataclass(frozen=True, slots=True)
class Roll:
    """Seal this segment because it is old or large; one successor of the same range."""

    segment: str
    because: str


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided and why, in words for people."""

    at: int
    topic: str
    action: str
    segments: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Request:
    """What a person asked for: ``split`` (at boundaries, or in the middle), ``merge``, ``move`` or ``roll``."""

    action: str
    segments: tuple[str, ...]
    boundaries: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Followed:
    """The requests that no plan carries out: those that wait, those that cannot be done any more and why."""

    waiting: list[Request]
    given_up: dict[Request, str]


def check_request(layout: Layout, request: Request) -> None:
    """Raises ValueError, in words for the person who asked, when the request cannot be carried out."""
    if request.action not in ("split", "merge", "move", "roll"):
        raise ValueError(f"unknown action {request.action!r}: use split, merge, move or roll")
    segments = []
    for i, name in enumerate(request.segments):
        if name in request.segments[:i]:
            raise ValueError(f"{name} is named twice")
        if name not in layout:
            raise ValueError(f"the topic has no open segment {name!r}: see `smq segment list`")
        segments.append(layout.segment(name))
        if segments[-1].successors or segments[-1].phase is not Phase.OPEN:
            raise ValueError(f"{name} is {segments[-1].phase.value}: only open segments can change")
    if request.action == "merge":
        if len(segments) < 2:
            raise ValueError("a merge needs two or more neighbouring segments")
        union(s.range for s in segments)
    elif len(segments) != 1:
        raise ValueError(f"{request.action} takes exactly one segment")
    if request.action == "split":
        _parts(segments[0].range, request.boundaries)


def decide(
    spec: TopicSpec,
    layout: Layout,
    brokers: Mapping[str, BrokerView],
    requests: Sequence[Request],
    *,
    refused: Iterable[tuple[str, str]] = (),
    resting: Collection[str] = (),
    changes: Sequence[Change | Move | Roll] = (),
    now: int,
) -> tuple[list[SealPlan], list[Decision], Followed]:
    """One round. Returns the plans, a decision in words for each, and what became of the other requests.

    ``refused`` are (segment, incarnation) pairs: that broker will never open that segment. ``resting``: incarnations
    that get no segment now, and keep those they have. ``changes`` is what load and age ask for.
    """
    no = set(refused)
    takers = {name: broker for name, broker in brokers.items() if name not in resting}
    round_ = _Round(spec, layout, Placer(takers, avoid={incarnation for _, incarnation in no}))
    round_.leave_brokers(brokers, no)
    waiting, given_up = round_.follow(requests)
    round_.restore_replicas(takers)
    round_.change(changes)
    plans = round_.plans
    decisions = [Decision(now, layout.topic, p.reason.value.lower(), p.segments, p.because) for p in plans]
    return plans, decisions, Followed(waiting, given_up)


class _Round:
    """The plans of one round; a segment that is planned is free no more."""

    def __init__(self, spec: TopicSpec, layout: Layout, placer: Placer) -> None:
        self._spec = spec
        self._layout = layout
        self._placer = placer
        self._free = {s.name: s for s in layout.segments if not s.successors}
        self.plans: list[SealPlan] = []

    def leave_brokers(self, brokers: Mapping[str, BrokerView], refused: set[tuple[str, str]]) -> None:
        """Failover at once; a drain at a pace, so that not all of a topic's writers are moved at one moment.

        Nobody writes to a segment that has not opened yet, but those of its predecessors may have to wait for it.
        """
        written = [s for s in self._layout.segments if s.phase is not Phase.PENDING]
        moving = sum(s.sealed_because is Reason.DRAIN for s in written)
        pace = max(1, len(self._layout.segments) // DRAIN_SHARE)
        for segment in list(self._free.values()):
            broken = _broken(segment, brokers, refused)
            if broken is None:
                continue
            reason, because = broken
            paced = reason is Reason.DRAIN and segment.phase is not Phase.PENDING
            if paced and moving >= pace:
                continue
            if self._seal([segment], [segment.range], reason, because) and paced:
                moving += 1

    def follow(self, requests: Sequence[Request]) -> tuple[list[Request], dict[Request, str]]:
        """Carries out what people asked for; returns what has to wait, and what something else came before."""
        waiting, given_up = [], {}
        for request in requests:
            try:
                check_request(self._layout, request)
            except ValueError as error:
                if not self._is_done(request):
                    given_up[request] = str(error)
                continue
            asked = [self._free[name] for name in request.segments if name in self._free]
            parts = _requested_parts(asked, request) if len(asked) == len(request.segments) else []
            because, away = f"{request.action} asked for by hand", request.action == "move"
            if not parts or not self._seal(asked, parts, Reason.MANUAL, because, away=away):
                waiting.append(request)
        return waiting, given_up

    def _is_done(self, request: Request) -> bool:
        """Whatever seals a segment rolls it, and moves it as well as may be. A split or a merge may have been made, by
        another reason, or by a PUT of the layout that was applied though nobody heard of it."""
        if request.action in ("roll", "move"):
            return True
        there = [self._layout.segment(name) for name in request.segments if name in self._layout]
        becomes = {s.successors for s in there}
        if len(there) < len(request.segments) or len(becomes) > 1:
            return False
        return all(len(names) > 1 if request.action == "split" else len(names) == 1 for names in becomes)

    def restore_replicas(self, brokers: Mapping[str, BrokerView]) -> None:
        for segment in self._open():
            if _degraded(self._spec, segment, brokers):
                self._seal([segment], [segment.range], Reason.REBALANCE, "enough brokers for replicas again")
            elif self._spec.durability is Durability.STORED and segment.durability is Durability.REPLICATED:
                self._seal([segment], [segment.range], Reason.REBALANCE, "the topic's durability is Stored now")

    def change(self, changes: Sequence[Change | Move | Roll]) -> None:
        """What load and age ask for, as far as nothing more urgent has taken the segments."""
        for change in changes:
            match change:
                case Split(segment=name, boundaries=boundaries, because=because):
                    old = self._free.get(name)
                    if old is not None:
                        self._seal([old], old.range.cut(boundaries), Reason.SPLIT, because)
                case Merge(segments=names, because=because):
                    olds = [self._free[n] for n in names if n in self._free]
                    if len(olds) == len(names):
                        self._seal(olds, [union(o.range for o in olds)], Reason.MERGE, because)
                case Move(segment=name, away=away, to=to, because=because):
                    old = self._free.get(name)
                    if old is not None:
                        self._move(old, tuple(to if r == away else r for r in old.replicas), because)
                case Roll(segment=name, because=because):
                    old = self._free.get(name)
                    if old is not None:
                        self._seal([old], [old.range], Reason.ROLL, because)
                case HotPartition():
                    pass

    def _move(self, old: Segment, replicas: tuple[Replica, ...], because: str) -> None:
        self._placer.count(replicas)
        successor = Successor(old.range, replicas, old.durability)
        self.plans.append(SealPlan((old.name,), Reason.REBALANCE, (successor,), because))
        del self._free[old.name]

    def _open(self) -> list[Segment]:
        return [s for s in self._free.values() if s.phase is Phase.OPEN]

    def _seal(
        self,
        segments: Sequence[Segment],
        parts: Sequence[KeyRange],
        reason: Reason,
        because: str,
        *,
        away: bool = False,
    ) -> bool:
        """Plans it; ``away`` from the brokers it is on. False, and nothing is planned, when there is no broker."""
        successors = []
        before = segments[0].replicas
        avoid = before if away else ()
        for part in parts:
            placed = self._placer.place(self._spec.durability, self._spec.replicas, stay=before, avoid=avoid)
            if placed is None:
                return False
            successors.append(Successor(part, placed.replicas, placed.durability))
        self.plans.append(SealPlan(tuple(s.name for s in segments), reason, tuple(successors), because))
        for segment in segments:
            del self._free[segment.name]
        return True


def _broken(
    segment: Segment, brokers: Mapping[str, BrokerView], refused: set[tuple[str, str]]
) -> tuple[Reason, str] | None:
    """Why this segment cannot stay on its replicas, or None."""
    there = [brokers.get(replica.incarnation) for replica in segment.replicas]
    if not refused and all(broker is not None and broker.takes_segments for broker in there):
        return None
    for replica, broker in zip(segment.replicas, there, strict=True):
        if broker is None or broker.liveness is not Liveness.ALIVE:
            how = "is gone" if broker is not None and broker.liveness is Liveness.GONE else "does not answer"
            return Reason.FAILOVER, f"broker {replica.broker} {how}"
        if (segment.name, replica.incarnation) in refused:
            return Reason.FAILOVER, f"broker {replica.broker} could not open it"
    for replica in segment.replicas:
        if brokers[replica.incarnation].draining:
            return Reason.DRAIN, f"broker {replica.broker} is being drained"
    return None


def _degraded(spec: TopicSpec, segment: Segment, brokers: Mapping[str, BrokerView]) -> bool:
    """True when the segment has fewer replicas than are wished for, and more brokers are there now."""
    if spec.durability is not Durability.REPLICATED or len(segment.replicas) >= spec.replicas:
        return False
    possible = min(spec.replicas, sum(b.takes_segments for b in brokers.values()))
    return possible >= 2 and len(segment.replicas) < possible


def _requested_parts(segments: Sequence[Segment], request: Request) -> list[KeyRange]:
    if request.action == "split":
        return _parts(segments[0].range, request.boundaries)
    return [union(s.range for s in segments)]


def _parts(whole: KeyRange, boundaries: Sequence[int]) -> list[KeyRange]:
    if len(whole) < 2:
        raise ValueError(f"{whole} is a single partition: it cannot be split")
    if not boundaries:
        return even_split(whole, 2)
    at = sorted(set(boundaries))
    if not all(whole.start < b < whole.stop for b in at):
        raise ValueError(f"a boundary must lie inside {whole}, between {whole.start + 1} and {whole.stop - 1}")
    return whole.cut(at)
