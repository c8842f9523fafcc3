"""Plans which segments of a topic to seal now, why, and which successors they get.

Every rule produces ``SealPlan``s. The order of the rules matters, because a segment is planned at most once in a pass,
by the first rule that applies.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from smq_core.model.decision import Decision, DecisionAction
from smq_core.model.entities import (
    Durability,
    Layout,
    Liveness,
    Micros,
    Phase,
    Reason,
    Replica,
    Segment,
    TopicSchema,
    TopicSpec,
)
from smq_core.model.keyspace import KeyRange
from smq_core.model.layout_transitions import SealPlan, Successor
from smq_core.model.schema_evolution import newest_schema, summary
from smq_core.model.segment_action import SegmentAction
from smq_core.model.segment_changes import SegmentChange
from smq_core.reconcile.schema_rollout import is_under_way, segments_to_seal
from smq_core.scaling.placement import BrokerView, Placer

# At most this part (one in four) of a topic's segments moves away from a draining broker at a time.
DRAIN_SHARE = 4
_REASONS = {
    SegmentAction.SPLIT: Reason.SPLIT,
    SegmentAction.MERGE: Reason.MERGE,
    SegmentAction.MOVE: Reason.REBALANCE,
    SegmentAction.ROLL: Reason.ROLL,
}


@dataclass(frozen=True, slots=True)
class RequestOutcome:
    """The requests that no plan carries out: those that wait, and those that became impossible, with the reason."""

    waiting: list[SegmentChange]
    rejected: dict[SegmentChange, str]


def plan_seals(
    spec: TopicSpec,
    layout: Layout,
    brokers: Mapping[str, BrokerView],
    requests: Sequence[SegmentChange],
    *,
    refused: Iterable[tuple[str, str]] = (),
    cooling_down: Collection[str] = (),
    changes: Sequence[SegmentChange] = (),
    schemas: Sequence[TopicSchema] = (),
    sealed: Collection[str] = (),
    now: Micros,
) -> tuple[list[SealPlan], list[Decision], RequestOutcome]:
    """One planning pass. Returns the plans, the decisions, and the outcome of the other requests.

    There is one decision for each plan, but one for a whole new version of the schema: the version enters the layout
    with it, also if no segment is sealed for it in this pass.

    ``refused`` has pairs of segment and incarnation: that broker will never open that segment. Incarnations in
    ``cooling_down`` receive no segment now, but keep those they have. ``changes`` come from load and age. ``schemas``
    is the history of the topic's schema, oldest first: segments of any version but the last are sealed, some at a time.
    ``sealed`` names segments of the layout whose seal chunk exists.
    """
    refused_pairs = set(refused)
    available = {name: broker for name, broker in brokers.items() if name not in cooling_down}
    planning_pass = _PlanningPass(
        spec, layout, Placer(available, avoid={incarnation for _, incarnation in refused_pairs})
    )
    planning_pass.plan_failovers_and_drains(brokers, refused_pairs)
    waiting, rejected = planning_pass.plan_requests(requests)
    planning_pass.plan_schema_change(schemas, sealed, available)
    planning_pass.plan_replica_restores(available)
    for change in changes:
        planning_pass.plan_change(change, _REASONS[change.action])
    plans = planning_pass.plans
    decisions = [
        Decision(
            at=now,
            topic=layout.topic,
            action=DecisionAction.of(plan.reason),
            segments=plan.segments,
            reason=plan.because,
        )
        for plan in plans
        if plan.reason is not Reason.SCHEMA
    ]
    is_new = bool(schemas) and schemas[-1].version > newest_schema(layout, schemas[0].columns).version
    if is_new and (plans or is_under_way(layout)):
        decisions.append(_schema_decision(layout, schemas, now))
    return plans, decisions, RequestOutcome(waiting, rejected)


class _PlanningPass:
    """The plans of one pass. A segment that is planned is not free any more."""

    def __init__(self, spec: TopicSpec, layout: Layout, placer: Placer) -> None:
        self._spec = spec
        self._layout = layout
        self._placer = placer
        self._free = {s.name: s for s in layout.segments if not s.successors}
        self.plans: list[SealPlan] = []

    def plan_failovers_and_drains(self, brokers: Mapping[str, BrokerView], refused: set[tuple[str, str]]) -> None:
        """Plans failovers at once, and drains at a limited rate, so that a topic's writers do not all move together.

        Pending segments do not count against that limit: they have no writers, and the writers of their predecessors
        may wait for them.
        """
        written = [s for s in self._layout.segments if s.phase is not Phase.PENDING]
        moving = sum(s.sealed_because is Reason.DRAIN for s in written)
        max_drains = max(1, len(self._layout.segments) // DRAIN_SHARE)
        for segment in list(self._free.values()):
            broken = _replica_problem(segment, brokers, refused)
            if broken is None:
                continue
            reason, because = broken
            is_limited = reason is Reason.DRAIN and segment.phase is not Phase.PENDING
            if is_limited and moving >= max_drains:
                continue
            if self._seal([segment], [segment.range], reason, because) and is_limited:
                moving += 1

    def plan_requests(self, requests: Sequence[SegmentChange]) -> tuple[list[SegmentChange], dict[SegmentChange, str]]:
        """Plans manual requests. Returns those that have to wait, and those that are no longer possible."""
        waiting, rejected = [], {}
        for request in requests:
            try:
                request.validate(self._layout)
            except ValueError as error:
                if not self._is_already_done(request):
                    rejected[request] = str(error)
                continue
            if not self.plan_change(request, Reason.MANUAL):
                waiting.append(request)
        return waiting, rejected

    def _is_already_done(self, request: SegmentChange) -> bool:
        """True if the layout has carried out the request already.

        Any seal rolls a segment, and moves it as well as possible. A split or a merge may have happened for another
        reason, or by a PUT of the layout that was applied although its answer was lost.
        """
        if request.action in (SegmentAction.ROLL, SegmentAction.MOVE):
            return True
        requested_segments = [self._layout.segment(name) for name in request.segments if name in self._layout]
        successor_sets = {s.successors for s in requested_segments}
        if len(requested_segments) < len(request.segments) or len(successor_sets) > 1:
            return False
        return all(
            len(names) > 1 if request.action is SegmentAction.SPLIT else len(names) == 1 for names in successor_sets
        )

    def plan_schema_change(
        self, schemas: Sequence[TopicSchema], sealed: Collection[str], brokers: Mapping[str, BrokerView]
    ) -> None:
        """Plans to seal some of the segments of older versions, as many as may be sealed at the same time.

        The successors stay on the same brokers if these take segments: nothing has to move, and their primaries have
        the seal in memory.
        """
        if not schemas:
            return
        because = f"schema version {schemas[-1].version}"
        for segment in segments_to_seal(self._layout, self._free.values(), schemas[-1].version, sealed, brokers):
            if _may_stay(self._spec, segment, brokers):
                self._succeed(segment, segment.replicas, Reason.SCHEMA, because)
            else:
                self._seal([segment], [segment.range], Reason.SCHEMA, because)

    def plan_replica_restores(self, brokers: Mapping[str, BrokerView]) -> None:
        for segment in self._open():
            if _degraded(self._spec, segment, brokers):
                self._seal([segment], [segment.range], Reason.REBALANCE, "enough brokers for replicas again")
            elif self._spec.durability is Durability.STORED and segment.durability is Durability.REPLICATED:
                self._seal([segment], [segment.range], Reason.REBALANCE, "the topic's durability is Stored now")

    def plan_change(self, change: SegmentChange, reason: Reason) -> bool:
        """Plans a change, unless a more urgent rule has taken a segment of it. False also if there is no broker."""
        segments = [self._free[name] for name in change.segments if name in self._free]
        if len(segments) < len(change.segments):
            return False
        if change.replacement is not None:
            old, new = change.replacement
            replicas = tuple(new if replica == old else replica for replica in segments[0].replicas)
            self._succeed(segments[0], replicas, reason, change.because)
            return True
        because, away = change.because or f"manual {change.action}", change.action is SegmentAction.MOVE
        return self._seal(segments, change.parts(segments), reason, because, away=away)

    def _succeed(self, old: Segment, replicas: tuple[Replica, ...], reason: Reason, because: str) -> None:
        """Plans one successor of the same range on these replicas."""
        self._placer.count(replicas)
        successor = Successor(old.range, replicas, old.durability)
        self.plans.append(SealPlan((old.name,), reason, (successor,), because))
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
        """Plans a seal; with ``away``, its successors avoid the current brokers. False if there is no broker."""
        successors = []
        before = segments[0].replicas
        avoid = before if away else ()
        for part in parts:
            placed = self._placer.place(self._spec.durability, self._spec.replicas, preferred=before, avoid=avoid)
            if placed is None:
                return False
            successors.append(Successor(part, placed.replicas, placed.durability))
        self.plans.append(SealPlan(tuple(s.name for s in segments), reason, tuple(successors), because))
        for segment in segments:
            del self._free[segment.name]
        return True


def _schema_decision(layout: Layout, schemas: Sequence[TopicSchema], now: Micros) -> Decision:
    """One decision for all segments of older versions, when the newest version enters the layout."""
    return Decision(
        at=now,
        topic=layout.topic,
        action=DecisionAction.SCHEMA,
        segments=tuple(s.name for s in layout.segments if not s.successors),
        reason=summary(schemas, schemas[-2].version),
    )


_UNAVAILABLE = {
    Liveness.SUSPECT: "does not answer",
    Liveness.ENDED: "has ended",
    Liveness.RECOVERED: "was restarted",
    Liveness.GONE: "is gone",
}


def _replica_problem(
    segment: Segment, brokers: Mapping[str, BrokerView], refused: set[tuple[str, str]]
) -> tuple[Reason, str] | None:
    """The reason why this segment cannot stay on its replicas, or None."""
    replica_brokers = [brokers.get(replica.incarnation) for replica in segment.replicas]
    if not refused and all(broker is not None and broker.accepts_segments for broker in replica_brokers):
        return None
    for replica, broker in zip(segment.replicas, replica_brokers, strict=True):
        if broker is None or broker.liveness is not Liveness.ALIVE:
            liveness = broker.liveness if broker is not None else Liveness.SUSPECT
            return Reason.FAILOVER, f"broker {replica.broker} {_UNAVAILABLE[liveness]}"
        if (segment.name, replica.incarnation) in refused:
            return Reason.FAILOVER, f"broker {replica.broker} cannot serve it"
    for replica in segment.replicas:
        if brokers[replica.incarnation].draining:
            return Reason.DRAIN, f"broker {replica.broker} is being drained"
    return None


def _may_stay(spec: TopicSpec, segment: Segment, brokers: Mapping[str, BrokerView]) -> bool:
    """True if all brokers of the segment take segments, and it has as many replicas as it should and can have."""
    views = [brokers.get(replica.incarnation) for replica in segment.replicas]
    whole = segment.durability is spec.durability and not _degraded(spec, segment, brokers)
    return (
        whole
        and len(segment.replicas) <= spec.replicas
        and all(view is not None and view.accepts_segments for view in views)
    )


def _degraded(spec: TopicSpec, segment: Segment, brokers: Mapping[str, BrokerView]) -> bool:
    """True if the segment has fewer replicas than desired, and enough brokers are available for more."""
    if spec.durability is not Durability.REPLICATED or len(segment.replicas) >= spec.replicas:
        return False
    possible = min(spec.replicas, sum(b.accepts_segments for b in brokers.values()))
    return possible >= 2 and len(segment.replicas) < possible
