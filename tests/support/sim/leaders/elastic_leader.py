"""A simulated leader that scales: it takes the brokers' load reports, and requests more or fewer brokers.

Core's TopicReconciler plans splits, merges and moves from these loads. The number of brokers follows core's broker
fleet, as in ``smq_operator.reconcile.fleet``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from smq_core.model.entities import Layout, Liveness, Replica
from smq_core.reconcile.effects import PutLayout
from smq_core.scaling.broker_fleet import FleetLoad, FleetScaler, choose_broker_to_drain
from smq_core.scaling.placement import BrokerView
from smq_core.scaling.rebalancing import FOLLOWER_WEIGHT
from smq_core.scaling.segment_load import TrafficRates
from smq_operator.cleanup.unreferenced_uploads import HostedSegment, WrittenUploads
from support.sim.engine.world import MS, SECOND, Future, Steps
from support.sim.leaders import orphaned_files, uploads
from support.sim.leaders.file_lists import SimulatedFileLists
from support.sim.leaders.protocol_leader import LastReport, SimulatedLeader
from support.sim.leaders.retention import SimulatedRetention
from support.sim.leaders.topic_deletion import SimulatedTopicDeletion

if TYPE_CHECKING:
    from support.sim.histories.elastic import ElasticHistory


class ElasticLeader(SimulatedLeader):
    history: ElasticHistory

    def __init__(self, history: ElasticHistory, address: str) -> None:
        super().__init__(history, address)
        self.fleet = FleetScaler()
        self.memory: dict[str, float] = {}
        self.expected: Layout | None = None
        self._work: Mapping[str, int] = {}
        self._traffic: Mapping[str, float] = {}
        self._enqueued = False
        self.process.start(self._keep_fleet())
        self.retainer = SimulatedRetention(self)
        self.written: dict[HostedSegment, WrittenUploads] = {}
        self.ender = SimulatedTopicDeletion(self)
        if history.deleting.drawn:
            history.loops.append(self.ender.loop)
            self.ender.start()
        if history.limits.on or history.references is not None:
            history.loops.append(self.retainer.loop)
        if history.limits.on:
            self.process.start(self.retainer.keep())
        if history.references is not None:
            self.process.start(uploads.keep(self))
        if history.file_lists.drawn:
            file_lists = SimulatedFileLists(self)
            history.loops.append(file_lists.loop)
            self.process.start(file_lists.keep())
        if history.orphan_scenario.drawn:
            self.process.start(orphaned_files.keep(self))

    def on_report(self, report: tuple[Any, ...]) -> Steps:
        incarnation, leaving, load = report[1], report[3], report[7]
        layout = self.machine.layout
        self.memory[incarnation] = load.memory
        self.retainer.begun[incarnation] = load.begun
        self.written |= {(incarnation, name): it for name, it in load.written.items()}
        for name, counters in load.segments.items():
            if layout is not None and name in layout and layout.segment(name).primary.incarnation == incarnation:
                self.machine.load.observe(name, counters, self.clock())
        answer = yield from super().on_report(report)
        if self.ender.knows:
            blocked = report[8] or self.ender.topic_deletions.blocks_leaving(incarnation)
            return leaving and not blocked, set()
        return answer

    def delete(self) -> Future:
        """An administrator's request to delete the topic. Returns the answer, or an error."""
        return self.ender.loop.start(self.ender.delete())

    # ---- the loop

    def enqueue(self) -> None:
        """Handles answers that arrive at about the same time in one step, as the leader process does."""
        if not self._enqueued:
            self._enqueued = True
            self.process.after(self.world.between(1 * MS, 20 * MS), self.step)

    def step(self) -> None:
        self._enqueued = False
        if self.ender.sees():
            return
        pausing = self.history.pausing
        if self.history.deployment.reached_by(self.process):
            self.machine.load.paused = pausing.on
        super().step()
        same: dict[tuple[str, str], list[str]] = {}
        for decision in self.machine.decisions:
            pausing.decided(self.process, decision)
            same.setdefault((decision.action, decision.reason), []).extend(decision.segments)
        self.machine.decisions.clear()
        for (action, reason), names in same.items():
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            self._decided(f"{action} {', '.join(names[:3])}{more}: {reason}")

    def _decided(self, words: str) -> None:
        self.history.decisions.append((self.world.now, self.process.name, words))
        self.world.note(self.process.name, "", f"decides: {words}")

    # ---- the broker views for core

    def views(self) -> dict[str, BrokerView]:
        layout = self.expected or self.machine.layout
        segments = layout.segments if layout is not None else ()
        self._work = Counter()
        for segment in segments:
            if not segment.successors:
                for rank, replica in enumerate(segment.replicas):
                    self._work[replica.incarnation] += 2 if rank == 0 else 1
        load = self.machine.load
        self._traffic = load.count_by_broker(self.machine.topic.spec, layout) if layout is not None else {}
        return super().views()

    def view(self, replica: Replica, liveness: Liveness, last_report: LastReport | None) -> BrokerView:
        incarnation = replica.incarnation
        return BrokerView(
            replica=replica,
            liveness=liveness,
            draining=last_report is not None and last_report.leaving,
            node=replica.address,
            zone=self.history.zone_of(replica.address),
            load=self._traffic.get(incarnation, 0.0),
            segments=self._work.get(incarnation, 0),
        )

    def _put_layout(self, effect: PutLayout) -> Steps:
        self.expected = effect.layout
        try:
            return (yield from super()._put_layout(effect))
        finally:
            self.expected = None

    # ---- the number of brokers

    def _keep_fleet(self) -> Steps:
        while True:
            yield SECOND
            self._check_fleet()

    def _check_fleet(self) -> None:
        deployment, machine, now = self.history.deployment, self.machine, self.clock()
        views = self.views()
        living = [b for b in views.values() if b.liveness is Liveness.ALIVE]
        have = deployment.wanted
        if self.ender.knows or machine.layout is None or not deployment.reached_by(self.process):
            return
        if len(living) != have or any(b.draining for b in living):
            return
        desired_brokers = self.fleet.desired_brokers(
            self.history.policy, have, self._fleet_load(), machine.topic.spec.replicas, now
        )
        if desired_brokers.brokers == have:
            return
        least = choose_broker_to_drain(living) if desired_brokers.brokers < have else None
        self._decided(f"{have} to {desired_brokers.brokers} brokers: {desired_brokers.because}")
        deployment.scale(desired_brokers.brokers, least.replica.broker if least is not None else None)

    def _fleet_load(self) -> FleetLoad:
        total = TrafficRates()
        layout = self.machine.layout
        for segment in layout.segments if layout is not None else ():
            load = self.machine.load.segments.get(segment.name)
            if load is not None and not segment.successors:
                total = total.plus(load.fast, 1 + FOLLOWER_WEIGHT * (len(segment.replicas) - 1))
        fullest = max((self.memory.get(i, 0.0) for i in self.last_reports if i in self._work), default=0.0)
        return FleetLoad(total.bytes, total.batches, fullest)
