"""Which segments are to be sealed now, why, and what succeeds them: one round over one topic's layout.

Every rule ends in the same thing, a ``SealPlan``. Order matters: a segment is planned at most once a round, by the
first rule that wants it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from smq_core.keyspace import KeyRange, even_split, union
from smq_core.layout import SealPlan, Successor
from smq_core.model import Durability, Layout, Phase, Reason, Segment, TopicSpec
from smq_core.placement import BrokerView, Placer
from smq_core.sealing import Liveness


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


def check_request(layout: Layout, request: Request) -> None:
    """Raises ValueError, in words for the person who asked, when the request cannot be carried out."""
    if request.action not in ("split", "merge", "move", "roll"):
        raise ValueError(f"unknown action {request.action!r}: use split, merge, move or roll")
    segments = []
    for name in request.segments:
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
    now: int,
) -> tuple[list[SealPlan], list[Decision], list[Request]]:
    """One round. Returns the plans, a decision in words for each, and the requests that have to wait.

    ``refused`` are (segment, incarnation) pairs: that broker will never open that segment.
    """
    placer = Placer(brokers.values())
    plans: list[SealPlan] = []
    planned: set[str] = set()
    no = set(refused)

    def seal(
        segments: Sequence[Segment], parts: Sequence[KeyRange], reason: Reason, because: str, *, away: bool = False
    ) -> bool:
        successors = []
        before = segments[0].replicas
        for part in parts:
            placed = placer.place(spec.durability, spec.replicas, stay=before, avoid=before if away else ())
            if placed is None:
                return False
            successors.append(Successor(part, placed.replicas, placed.durability))
        names = tuple(s.name for s in segments)
        plans.append(SealPlan(names, reason, tuple(successors), because))
        planned.update(names)
        return True

    free = [s for s in layout.segments if not s.successors]
    for segment in free:
        reason_words = _broken(segment, brokers, no)
        if reason_words is not None:
            seal([segment], [segment.range], *reason_words)
    opened = {s.name: s for s in free if s.phase is Phase.OPEN}
    waiting: list[Request] = []
    for request in requests:
        try:
            check_request(layout, request)
        except ValueError:
            continue
        if any(name in planned for name in request.segments):
            waiting.append(request)
            continue
        asked = [opened[name] for name in request.segments]
        parts = _requested_parts(asked, request)
        away = request.action == "move"
        if not seal(asked, parts, Reason.MANUAL, f"{request.action} asked for by hand", away=away):
            waiting.append(request)
    for segment in opened.values():
        if segment.name not in planned and _degraded(spec, segment, brokers):
            words = "enough brokers for replicas again"
            seal([segment], [segment.range], Reason.REBALANCE, words)
    decisions = [Decision(now, layout.topic, p.reason.value.lower(), p.segments, p.because) for p in plans]
    return plans, decisions, waiting


def _broken(
    segment: Segment, brokers: Mapping[str, BrokerView], refused: set[tuple[str, str]]
) -> tuple[Reason, str] | None:
    """Why this segment cannot stay on its replicas, or None."""
    for replica in segment.replicas:
        broker = brokers.get(replica.incarnation)
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
    if spec.durability is not Durability.REPLICATED:
        return False
    possible = min(spec.replicas, sum(b.takes_segments for b in brokers.values()))
    return possible >= 2 and len(segment.replicas) < possible


def _requested_parts(segments: Sequence[Segment], request: Request) -> list[KeyRange]:
    if request.action == "split":
        return _parts(segments[0].range, request.boundaries)
    return [union(s.range for s in segments)]


def _parts(whole: KeyRange, boundaries: Sequence[int]) -> list[KeyRange]:
    if not boundaries:
        return even_split(whole, 2)
    at = sorted(set(boundaries))
    if not all(whole.start < b < whole.stop for b in at):
        raise ValueError(f"a boundary must lie inside {whole}, between {whole.start + 1} and {whole.stop - 1}")
    return whole.cut(at)
