"""Mutations of elasticity, one rule each, which the elastic histories must detect. See ``protocol_mutations``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from simulation.mutations.mutation_table import MutationTable, Patch
from smq_core.model.chunk_info import SealOutcome
from smq_core.model.entities import Liveness
from smq_core.model.segment_action import SegmentAction
from smq_core.model.segment_changes import SegmentChange
from smq_core.reading.segment_dag import ReadProgress
from smq_core.reconcile import retention, seal_planner
from smq_core.reconcile.retention import plan_retention
from smq_core.reconcile.topic_reconciler import TopicReconciler
from smq_core.replica.segment_replica import SegmentReplica
from smq_core.scaling import autoscaler, broker_fleet, topic_load
from smq_core.scaling.autoscaler import Autoscaler
from smq_core.scaling.broker_fleet import DesiredBrokers, FleetPolicy, FleetScaler
from smq_core.scaling.placement import BrokerView
from smq_core.scaling.segment_load import MeasuredLoad
from smq_core.scaling.topic_load import TopicLoad
from smq_operator.cleanup import retention as retain
from smq_operator.cleanup.filer_clock import ClockReading
from smq_storage.catalog import sealed_index
from support.sim.leaders.elastic_leader import ElasticLeader

MUTATIONS = MutationTable()
mutation = MUTATIONS.add


# ---- splits and merges


@mutation
def merge_segments_that_are_not_adjacent(patch: Patch) -> None:
    """Only neighbours on the ring merge."""
    original = Autoscaler._quiet_runs

    def quiet_runs(self: Any, spec: Any, ordered: Any, loads: Any, ahead: Any, surplus: int, now: int) -> Any:
        every_other = [*ordered[::2], *ordered[1::2]]
        runs = original(self, spec, every_other, loads, ahead, surplus, now)
        alone = [s for run, _ in runs if len(run) == 1 for s in run]
        return [*(r for r in runs if len(r[0]) > 1), *([(alone[:2], 0.0)] if len(alone) > 1 and surplus > 0 else [])]

    patch.setattr(Autoscaler, "_quiet_runs", quiet_runs)


@mutation
def cut_by_load_from_the_start_of_the_ring(patch: Patch) -> None:
    """Boundaries are partitions of the ring, not of the segment."""
    original = autoscaler.split_points_by_load

    def cut(whole: Any, *rest: Any) -> list[int]:
        return [at - whole.start for at in original(whole, *rest)]

    patch.setattr(autoscaler, "split_points_by_load", cut)


@mutation
def merge_without_waiting(patch: Patch) -> None:
    """A merge waits for ``merge_after`` of low load, counted from the last split or merge."""
    original = Autoscaler._merges

    def merges(self: Any, runs: Any, wait: int, crowded: bool, now: int) -> Any:
        return original(self, runs, 0, crowded, now)

    patch.setattr(Autoscaler, "_merges", merges)


@mutation
def a_successor_of_another_range_inherits_the_waits(patch: Patch) -> None:
    """Only a segment that replaces another one of the same range inherits its waits."""

    def pass_on(self: TopicLoad, layout: Any) -> None:
        for new in layout.segments:
            for name in new.predecessors:
                if name in self.segments and new.name not in self.segments:
                    self.segments[new.name] = self.segments[name].copy_for_successor()
                    self._scaler.inherit(name, new.name)

    patch.setattr(TopicLoad, "_inherit_load", pass_on)


@mutation
def split_at_the_first_sight_of_a_load(patch: Patch) -> None:
    """A split waits until load was above the threshold for ``split_after`` since the last split."""

    def is_due(self: Any, spec: Any, name: str, ahead: float, loads: Any, now: int) -> bool:
        self.above_since.setdefault(name, now)
        return ahead > 0.5

    patch.setattr(Autoscaler, "_is_due", is_due)


@mutation
def split_beyond_the_maximum(patch: Patch) -> None:
    """A split respects ``segments.max``."""
    original = Autoscaler._splits

    def splits(self: Any, spec: Any, ordered: Any, loads: Any, ahead: Any, capacity: int, now: int) -> Any:
        return original(self, spec, ordered, loads, ahead, 1_000, now)

    patch.setattr(Autoscaler, "_splits", splits)


@mutation
def merge_below_the_minimum(patch: Patch) -> None:
    """A merge respects ``segments.min``."""
    original = Autoscaler._quiet_runs

    def quiet_runs(self: Any, spec: Any, ordered: Any, loads: Any, ahead: Any, surplus: int, now: int) -> Any:
        return original(self, spec, ordered, loads, ahead, 1_000, now)

    patch.setattr(Autoscaler, "_quiet_runs", quiet_runs)


@mutation
def never_merge(patch: Patch) -> None:
    """Segments that were split are merged again after the load has ended."""
    patch.setattr(Autoscaler, "_merges", lambda self, runs, wait, crowded, now: [])


@mutation
def never_split(patch: Patch) -> None:
    """A load that stays above the target leads to more segments."""
    patch.setattr(Autoscaler, "_splits", lambda self, *rest: ([], False))


@mutation
def an_unknown_load_is_quiet(patch: Patch) -> None:
    """A segment without reports does not merge."""
    original = Autoscaler._quiet

    def quiet(self: Any, spec: Any, segment: Any, load: Any, ahead: float, now: int) -> Any:
        if load is None or not load.observed:
            self.quiet_since.setdefault(segment.name, now - 60_000_000)
            return 0.0
        return original(self, spec, segment, load, ahead, now)

    patch.setattr(Autoscaler, "_quiet", quiet)


@mutation
def the_slow_rate_never_falls(patch: Patch) -> None:
    """When a load has ended, its measured rates decrease."""
    original = MeasuredLoad.observe

    def observe(self: MeasuredLoad, *report: Any) -> bool:
        before = self.slow
        taken = original(self, *report)
        if self.slow.messages < before.messages:
            self.slow = before
        return taken

    patch.setattr(MeasuredLoad, "observe", observe)


@mutation
def scale_while_it_is_paused(patch: Patch) -> None:
    """While autoscaling is paused, load changes nothing."""
    original = TopicLoad.changes

    def changes(self: TopicLoad, *rest: Any) -> Any:
        paused, self.paused = self.paused, False
        found = original(self, *rest)
        self.paused = paused
        return found

    patch.setattr(TopicLoad, "changes", changes)


@mutation
def a_pause_stops_everything(patch: Patch) -> None:
    """While autoscaling is paused, failovers and manual requests continue."""
    original = TopicReconciler._change
    patch.setattr(TopicReconciler, "_change", lambda self, *rest: [] if self.load.paused else original(self, *rest))


# ---- seals and successors


@mutation
def a_merged_segment_opens_after_one_of_its_predecessors(patch: Patch) -> None:
    """A segment accepts nothing before all its predecessors are sealed."""
    original = SegmentReplica.predecessor_sealed

    def predecessor_sealed(self: SegmentReplica, outcome: SealOutcome) -> None:
        for other in list(self.unread_predecessors):
            original(self, replace(outcome, segment=other))

    patch.setattr(SegmentReplica, "predecessor_sealed", predecessor_sealed)


@mutation
def move_to_and_fro(patch: Patch) -> None:
    """A segment moves only if the difference in load is worth a seal."""

    def plan_moves(segments: Any, pressures: Any, brokers: Any, movable: Any, *rest: Any) -> Any:
        for segment in movable:
            held = {r.incarnation for r in segment.replicas}
            for name, broker in brokers.items():
                if broker.accepts_segments and name not in held:
                    replacement = segment.replicas[-1], broker.replica
                    return [
                        SegmentChange(SegmentAction.MOVE, (segment.name,), because="it could", replacement=replacement)
                    ]
        return []

    patch.setattr(topic_load, "plan_moves", plan_moves)


# ---- brokers


@mutation
def let_a_broker_go_before_its_segments_are_sealed(patch: Patch) -> None:
    """A draining broker may leave when no segment of the layout is on it."""
    original = ElasticLeader.on_report

    def on_report(self: ElasticLeader, report: tuple[Any, ...]) -> Any:
        _, named = yield from original(self, report)
        return report[3], named

    patch.setattr(ElasticLeader, "on_report", on_report)


@mutation
def place_on_brokers_that_drain(patch: Patch) -> None:
    """No segment is placed on a draining broker."""
    patch.setattr(BrokerView, "accepts_segments", property(lambda self: self.liveness is Liveness.ALIVE))


@mutation
def never_drain(patch: Patch) -> None:
    """Segments move away from a draining broker."""
    original = seal_planner._replica_problem

    def broken(*args: Any) -> Any:
        found = original(*args)
        return None if found is not None and found[0].value == "Drain" else found

    patch.setattr(seal_planner, "_replica_problem", broken)


@mutation
def scale_in_below_the_replicas(patch: Patch) -> None:
    """There are at least as many brokers as a topic's replicas, and as the policy's minimum."""
    original = FleetScaler.desired_brokers

    def desired_brokers(
        self: FleetScaler, policy: FleetPolicy, have: int, load: Any, replicas: int, now: int
    ) -> DesiredBrokers:
        return original(
            self,
            FleetPolicy(minimum=1, maximum=policy.maximum, bytes_per_second=policy.bytes_per_second),
            have,
            load,
            1,
            now,
        )

    patch.setattr(FleetScaler, "desired_brokers", desired_brokers)


@mutation
def scale_in_at_once(patch: Patch) -> None:
    """Brokers are removed one at a time, each after a period in which one fewer was enough."""
    original = FleetScaler.desired_brokers

    def desired_brokers(
        self: FleetScaler, policy: FleetPolicy, have: int, load: Any, replicas: int, now: int
    ) -> DesiredBrokers:
        if self.low_since is not None:
            self.low_since = now - broker_fleet.SCALE_IN_AFTER
        return original(self, policy, have, load, replicas, now)

    patch.setattr(FleetScaler, "desired_brokers", desired_brokers)


@mutation
def never_scale_in(patch: Patch) -> None:
    """Brokers that the load no longer needs are removed."""
    original = FleetScaler.desired_brokers

    def desired_brokers(
        self: FleetScaler, policy: FleetPolicy, have: int, load: Any, replicas: int, now: int
    ) -> DesiredBrokers:
        found = original(self, policy, have, load, replicas, now)
        return found if found.brokers >= have else DesiredBrokers(have, "")

    patch.setattr(FleetScaler, "desired_brokers", desired_brokers)


# ---- retention


@mutation
def remove_what_a_group_has_still_to_read(patch: Patch) -> None:
    """With ``unread: Keep`` a segment stays until every active group has read it."""
    patch.setattr(retention, "is_active", lambda *args: False)


@mutation
def do_not_report_what_was_removed_unread(patch: Patch) -> None:
    """If a segment is removed while a reader is in it, the reader reports what it has lost."""
    patch.setattr(ReadProgress, "removed", lambda self, segment, end: self.nodes.pop(segment, None))


@mutation
def call_lost_whatever_is_removed(patch: Patch) -> None:
    """A segment that was read to its end before its removal is not lost, even if the reader did not see the seal."""
    original = ReadProgress.removed
    patch.setattr(ReadProgress, "removed", lambda self, segment, end: original(self, segment, None))


@mutation
def measure_ages_with_the_leader_s_clock_alone(patch: Patch) -> None:
    """A segment is old only if the filer's clock says so, too."""
    patch.setattr(ClockReading, "age", lambda self, written_at, modified_at: self.leader - written_at)


@mutation
def delete_the_files_before_the_entry(patch: Patch) -> None:
    """An entry leaves the index before its files are deleted."""
    original = retain.remove_expired

    def remove_expired(store: Any, topic: Any, known: Any, groups: Any, begun: Any, clocks: Any, policy: Any) -> Any:
        for removal in plan_retention(
            topic.spec, sealed_index.read(store, topic.name, topic.uid), groups, clocks.leader
        ).removals:
            retain.delete_segment(store, topic, removal.segment)
        return original(store, topic, known, groups, begun, clocks, policy)

    patch.setattr(retain, "remove_expired", remove_expired)


@mutation
def remove_what_the_layout_still_has(patch: Patch) -> None:
    """A segment is removed only when it has left the layout and its successors do not need its seal any more."""
    original = retain.read_consistent

    def truth(store: Any, topic: Any) -> Any:
        found = original(store, topic)
        return found and retain.ConsistentState(found.index, replace(found.layout, segments=()))

    patch.setattr(retain, "read_consistent", truth)


@mutation
def remove_a_segment_before_its_predecessors(patch: Patch) -> None:
    """The oldest segments are removed first."""
    original = retain.plan_retention

    def anywhere(spec: Any, sealed: Any, groups: Any, now: int, needed: Any = ()) -> Any:
        return original(spec, [replace(entry, predecessors=()) for entry in sealed], groups, now, needed)

    patch.setattr(retain, "plan_retention", anywhere)
