"""What must hold of a leader that scales, besides the twelve invariants; a violation has the number 13.

13. Splits and merges of the same partitions keep their distance in time. Segments and brokers stay within their bounds.
    A removed broker hosts nothing. When the load has ended, segments and brokers return to the minimum and stay there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smq_core.invariants import Violation
from smq_core.model.entities import Layout, Reason, Segment, TopicSpec
from smq_core.producing.send_queue import DeliveredSubBatch
from smq_core.scaling import autoscaler, broker_fleet
from smq_core.scaling.broker_fleet import FleetPolicy
from support.sim.brokers.broker import SimulatedBroker
from support.sim.brokers.deployment import ReplicaChange
from support.sim.checks.protocol_checker import ProtocolChecker
from support.sim.clients.messages import SimulatedSubBatch
from support.sim.engine.world import MS, World
from support.sim.filer.chunk_chain import LAYOUT, StoredChunk
from support.sim.filer.object_store import SimulatedStore

if TYPE_CHECKING:
    from support.sim.leaders.topic_deletion import TopicDeletionScenario

SLACK = 50 * MS


class ElasticChecker(ProtocolChecker):
    """``several_leaders``: each remembers separately what was quiet since when, and which broker holds what.

    ``jumped``: how far the leaders' clocks have jumped in all.
    ``manual_changes``: manual requests may split and merge beyond the bounds.
    """

    spec: TopicSpec
    policy: FleetPolicy
    several_leaders: bool
    manual_changes = False
    deleting: TopicDeletionScenario | None = None

    def __init__(self, world: World, store: SimulatedStore) -> None:
        super().__init__(world, store)
        self.jumped = 0
        self._scaled_at: dict[int, int] = {}
        self._last_scaling: ReplicaChange | None = None

    # ---- the deletion of the topic

    def chain_of(self, name: str) -> list[StoredChunk]:
        """What retention decided on before the deletion may be written while the data goes: then what there was."""
        if self.deleting is not None and name in self.deleting.emptied:
            return self.deleting.stored(name)
        return super().chain_of(name)

    def _stored(self, path: str, value: Any) -> None:
        removed = path.startswith("seg/") and path.split("/")[1] in self.retained.rows
        if value is not None or self.deleting is None or removed:
            super()._stored(path, value)
        elif not path.startswith("doc/"):
            self.deleting.file_deleted(path)

    def acked_to(self, producer: Any, delivered: DeliveredSubBatch) -> None:
        super().acked_to(producer, delivered)
        if self.deleting is not None:
            assert isinstance(delivered.sub_batch, SimulatedSubBatch)
            self.deleting.acked(delivered.sub_batch.messages)

    # ---- layouts

    def _layout(self, layout: Layout) -> None:
        before = self.layouts[-1][1] if self.layouts else None
        super()._layout(layout)
        had = len(unchanged_segments(before)) if before is not None else 0
        if not self.manual_changes:
            self._bounds(had, len(unchanged_segments(layout)))
        for segment in layout.segments:
            if before is None or segment.name not in before:
                self._placed(segment)
                if segment.opened_because in (Reason.SPLIT, Reason.MERGE):
                    self._keeps_distance(segment, had)
        for segment in layout.segments:
            new = before is not None and segment.name not in before
            if new and segment.opened_because in (Reason.SPLIT, Reason.MERGE):
                for partition in range(segment.range.start, segment.range.stop):
                    self._scaled_at[partition] = segment.opened_at

    def _bounds(self, had: int, has: int) -> None:
        low, high = self.spec.min_segments, self.spec.max_segments
        if has > high:
            self._broken("layout", f"{has} segments, at most {high} are desired")
        if has < low and has < had:
            self._broken("layout", f"from {had} to {has} segments, at least {low} are desired")

    def _placed(self, segment: Segment) -> None:
        incarnations = [r.incarnation for r in segment.replicas]
        if len(set(incarnations)) < len(incarnations) or len(incarnations) > self.spec.replicas:
            self._broken(segment.name, f"it is placed on {incarnations}")

    def _keeps_distance(self, segment: Segment, had: int) -> None:
        spec = self.spec
        last = [self._scaled_at[p] for p in range(segment.range.start, segment.range.stop) if p in self._scaled_at]
        if not last:
            return
        if segment.opened_because is Reason.MERGE:
            wait = min(spec.merge_after, autoscaler.CROWDED_MERGE_AFTER)
            wait = spec.merge_after if had < spec.max_segments // 2 else wait
        else:
            wait = spec.split_after if had >= spec.min_segments else 0
        passed = segment.opened_at - max(last)
        if passed < wait - self.jumped - SLACK:
            what = segment.opened_because.value.lower()
            self._broken(segment.name, f"{what} {passed / 1e6:.1f} s after the last, {wait / 1e6:.1f} s are asked for")

    # ---- brokers

    def scaled(self, scaling: ReplicaChange) -> None:
        layout = self.store.truth(LAYOUT)
        is_deleted = bool(self.layouts) and (layout is None or layout.deleted)
        low = min(max(self.policy.minimum, 0 if is_deleted else self.spec.replicas), self.policy.maximum)
        if not low <= scaling.after <= self.policy.maximum:
            self._broken("brokers", f"{scaling.after} are asked for, {low} to {self.policy.maximum} are allowed")
        last, self._last_scaling = self._last_scaling, scaling
        fewer = scaling.after < scaling.before
        if last is not None and fewer and not self.several_leaders:
            passed = scaling.at - last.at
            if scaling.before - scaling.after > 1 or passed < broker_fleet.SCALE_IN_AFTER - self.jumped - SLACK:
                self._broken("brokers", f"{scaling.before} to {scaling.after}, {passed / 1e6:.1f} s after the last")

    def may_leave(self, broker: SimulatedBroker) -> None:
        if self.several_leaders:
            return  # one that was behind may not know yet what another gave to this broker
        for name, hosted in broker.hosted_segments.items():
            if name not in self.seals and hosted.machine.end:
                self._broken(name, f"{broker.incarnation} may leave and holds {hosted.machine.end} of its messages")

    def still_there(self, broker: SimulatedBroker) -> None:
        held = [name for name in broker.hosted_segments if name not in self.seals]
        self._broken(broker.incarnation, f"it was asked to go long ago, nothing is broken, and it still holds {held}")

    def _broken(self, subject: str, what: str) -> None:
        self.must([Violation(13, subject, what)])


def unchanged_segments(layout: Layout) -> list[Segment]:
    """The segments that nothing replaces."""
    return [s for s in layout.segments if not s.successors]
