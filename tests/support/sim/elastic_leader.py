"""A simulated leader that scales: it takes in what brokers report of their load, and asks for more or fewer of them.

Splits, merges and moves come from core's TopicLeader itself, once it is told the loads; the number of brokers is what
``smq_operator.fleet`` does around core's Fleet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from smq_core.autoscale import lasting
from smq_core.effects import PutLayout
from smq_core.fleet import Fleet, FleetLoad, to_drain
from smq_core.load import Rates
from smq_core.model import Layout, Replica
from smq_core.placement import BrokerView
from smq_core.rebalance import FOLLOWER, carried
from smq_core.sealing import Liveness
from support.sim import straying
from support.sim.deleting import Ender
from support.sim.leader import Heard, Leader
from support.sim.retaining import Retainer
from support.sim.world import MS, SECOND, Future, Steps

if TYPE_CHECKING:
    from support.sim.elastic import ElasticHistory


class ElasticLeader(Leader):
    history: ElasticHistory

    def __init__(self, history: ElasticHistory, address: str) -> None:
        super().__init__(history, address)
        self.fleet = Fleet()
        self.memory: dict[str, float] = {}
        self.expected: Layout | None = None
        self._work: Mapping[str, int] = {}
        self._traffic: Mapping[str, float] = {}
        self._kicked = False
        self.process.start(self._keep_fleet())
        self.retainer = Retainer(self)
        self.ender = Ender(self)
        if history.deleting.drawn:
            history.loops.append(self.ender.loop)
            self.ender.start()
        if history.limits.on:
            history.loops.append(self.retainer.loop)
            self.process.start(self.retainer.keep())
        if history.straying.drawn:
            self.process.start(straying.keep(self))

    def on_report(self, report: tuple[Any, ...]) -> Steps:
        incarnation, leaving, load = report[1], report[3], report[7]
        layout = self.machine.layout
        self.memory[incarnation] = load.memory
        self.retainer.begun[incarnation] = load.begun
        for name, counters in load.segments.items():
            if layout is not None and name in layout and layout.segment(name).primary.incarnation == incarnation:
                self.machine.load.observe(name, counters, self.clock())
        answer = yield from super().on_report(report)
        if self.ender.knows:
            return leaving and not self.ender.endings.keeps(incarnation), set()
        return answer

    def delete(self) -> Future:
        """A person asks for it; the answer, or an error."""
        return self.ender.loop.start(self.ender.delete())

    # ---- the loop

    def kick(self) -> None:
        """Answers that come at about the same time are looked at together, as the leader process does."""
        if not self._kicked:
            self._kicked = True
            self.process.after(self.world.between(1 * MS, 20 * MS), self.step)

    def step(self) -> None:
        self._kicked = False
        if self.ender.sees():
            return
        pausing = self.history.pausing
        if self.history.deployment.reached_by(self.process):
            self.machine.paused = pausing.on
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
        self.world.tell(self.process.name, "", f"decides: {words}")

    # ---- brokers as core sees them

    def views(self) -> dict[str, BrokerView]:
        layout = self.expected or self.machine.layout
        segments = layout.segments if layout is not None else ()
        self._work = Counter()
        for segment in segments:
            if not segment.successors:
                for rank, replica in enumerate(segment.replicas):
                    self._work[replica.incarnation] += 2 if rank == 0 else 1
        spec = self.machine.topic.spec
        loads = {name: lasting(load, spec) for name, load in self.machine.load.segments.items()}
        self._traffic = carried(segments, loads)
        return super().views()

    def view(self, replica: Replica, liveness: Liveness, told: Heard | None) -> BrokerView:
        incarnation = replica.incarnation
        return BrokerView(
            replica,
            liveness,
            draining=told is not None and told.leaving,
            node=replica.address,
            zone=self.history.zone_of(replica.address),
            load=self._traffic.get(incarnation, 0.0),
            segments=self._work.get(incarnation, 0),
        )

    def _put_layout(self, effect: PutLayout) -> Steps:
        self.expected = effect.layout
        yield from super()._put_layout(effect)
        self.expected = None

    # ---- how many brokers

    def _keep_fleet(self) -> Steps:
        while True:
            yield SECOND
            self._look()

    def _look(self) -> None:
        deployment, machine, now = self.history.deployment, self.machine, self.clock()
        views = self.views()
        living = [b for b in views.values() if b.liveness is Liveness.ALIVE]
        have = deployment.wanted
        if self.ender.knows or machine.layout is None or not deployment.reached_by(self.process):
            return
        if len(living) != have or any(b.draining for b in living):
            return
        wanted = self.fleet.wanted(self.history.policy, have, self._fleet_load(), machine.topic.spec.replicas, now)
        if wanted.brokers == have:
            return
        least = to_drain(living) if wanted.brokers < have else None
        self._decided(f"{have} to {wanted.brokers} brokers: {wanted.because}")
        deployment.scale(wanted.brokers, least.replica.broker if least is not None else None)

    def _fleet_load(self) -> FleetLoad:
        total = Rates()
        layout = self.machine.layout
        for segment in layout.segments if layout is not None else ():
            load = self.machine.load.segments.get(segment.name)
            if load is not None and not segment.successors:
                total = total.plus(load.fast, 1 + FOLLOWER * (len(segment.replicas) - 1))
        fullest = max((self.memory.get(i, 0.0) for i in self.heard if i in self._work), default=0.0)
        return FleetLoad(total.bytes, total.batches, fullest)
