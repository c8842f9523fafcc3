"""A deployment of brokers: restarts those that end, and terminates surplus ones.

As with a Deployment of Kubernetes, a request sets the number of brokers and may name the one to remove. Mostly that
one is removed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from support.sim.engine.termination_proofs import HOST
from support.sim.engine.world import MS, SECOND, Process

if TYPE_CHECKING:
    from support.sim.brokers.broker import SimulatedBroker
    from support.sim.histories.elastic import ElasticHistory

GRACE = 60 * SECOND


@dataclass(frozen=True, slots=True)
class ReplicaChange:
    """A request for a number of brokers. ``at`` is true time."""

    at: int
    before: int
    after: int


class SimulatedDeployment:
    def __init__(self, history: ElasticHistory, count: int) -> None:
        self.history = history
        self.world = history.world
        self.slots = [f"broker-{i}" for i in range(count)]
        self.scalings: list[ReplicaChange] = []

    @property
    def wanted(self) -> int:
        return len(self.slots)

    def reached_by(self, leader: Process) -> bool:
        """False if one direction between this leader and the API is cut."""
        cuts = self.history.network.cuts
        return (leader.host, HOST) not in cuts and (HOST, leader.host) not in cuts

    def scale(self, count: int, go: str | None) -> None:
        """Sets the number of brokers. ``go`` is the name of the one to remove."""
        self.history.checker.scaled(ReplicaChange(self.world.now, self.wanted, count))
        self.scalings.append(ReplicaChange(self.world.now, self.wanted, count))
        while self.wanted < count:
            self._add()
        while self.wanted > count:
            self._remove(go)

    def replace(self, broker: SimulatedBroker) -> None:
        """Deletes the broker manually: it is terminated, and another one starts at once."""
        if broker.address in self.slots:
            self.slots.remove(broker.address)
            self._terminate(broker)
            self._add()

    def died(self, broker: SimulatedBroker) -> None:
        """The process has ended. Another one replaces it, unless it is a surplus one."""
        if broker.address in self.slots:
            self.world.after(self.world.between(SECOND, 6 * SECOND), lambda: self.history.start_broker(broker.address))
        elif self.history.brokers.get(broker.address) is broker:
            del self.history.brokers[broker.address]

    def _add(self) -> None:
        taken = {*self.slots, *self.history.brokers}
        address = next(a for i in range(100) if (a := f"broker-{i}") not in taken)
        self.slots.append(address)
        self.world.note("!", "", f"{address} is to start")
        delay = self.world.between(300 * MS, 3 * SECOND)
        self.world.after(delay, lambda: self.history.start_broker(address, address.replace("broker-", "b")))

    def _remove(self, go: str | None) -> None:
        named = [a for a in self.slots if (b := self.history.brokers.get(a)) is not None and b.name == go]
        address = named[0] if named and not self.world.chance(0.15) else self.world.random.choice(self.slots)
        self.slots.remove(address)
        broker = self.history.brokers.get(address)
        if broker is None:
            return
        self._terminate(broker)

    def _terminate(self, broker: SimulatedBroker) -> None:
        self.world.note("!", "", f"{broker.incarnation} is to go")
        if not broker.process.alive:
            del self.history.brokers[broker.address]
            if self.history.journals.on:
                self.history.journals.lose_disk(broker)  # no process starts again in the deleted Pod
            return
        broker.process.run(broker.leave)
        in_peace = self.history.faults.over
        self.world.after(GRACE, lambda: self._grace_is_over(broker, in_peace))

    def _grace_is_over(self, broker: SimulatedBroker, in_peace: bool) -> None:
        """Without faults a broker drains in time. With faults it may have to be killed."""
        if broker.process.alive and in_peace:
            self.history.checker.still_there(broker)
        self.history.kill_broker(broker)
