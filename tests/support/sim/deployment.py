"""What keeps brokers running: as many as are wanted, each started again when it dies, terminated when it is too many.

As with a Deployment of Kubernetes, somebody says how many, and may say which one shall go; mostly that one goes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from support.sim.supervisor import HOST
from support.sim.world import MS, SECOND, Process

if TYPE_CHECKING:
    from support.sim.broker import Broker
    from support.sim.elastic import ElasticHistory

GRACE = 60 * SECOND


@dataclass(frozen=True, slots=True)
class Scaling:
    """Somebody asked for so many brokers. ``at`` is true time."""

    at: int
    before: int
    after: int


class Deployment:
    def __init__(self, history: ElasticHistory, count: int) -> None:
        self.history = history
        self.world = history.world
        self.slots = [f"broker-{i}" for i in range(count)]
        self.scalings: list[Scaling] = []

    @property
    def wanted(self) -> int:
        return len(self.slots)

    def reached_by(self, leader: Process) -> bool:
        """False when one direction between this leader and the API is cut."""
        cuts = self.history.network.cuts
        return (leader.host, HOST) not in cuts and (HOST, leader.host) not in cuts

    def scale(self, count: int, go: str | None) -> None:
        """So many brokers; ``go`` is the name of the one that should end."""
        self.history.checker.scaled(Scaling(self.world.now, self.wanted, count))
        self.scalings.append(Scaling(self.world.now, self.wanted, count))
        while self.wanted < count:
            self._add()
        while self.wanted > count:
            self._remove(go)

    def replace(self, broker: Broker) -> None:
        """Somebody deletes it: it is terminated, and another one starts at once."""
        if broker.address in self.slots:
            self.slots.remove(broker.address)
            self._terminate(broker)
            self._add()

    def died(self, broker: Broker) -> None:
        """Its process is no more: another one takes its place, unless it is one too many."""
        if broker.address in self.slots:
            self.world.after(self.world.between(SECOND, 6 * SECOND), lambda: self.history.start_broker(broker.address))
        elif self.history.brokers.get(broker.address) is broker:
            del self.history.brokers[broker.address]

    def _add(self) -> None:
        taken = {*self.slots, *self.history.brokers}
        address = next(a for i in range(100) if (a := f"broker-{i}") not in taken)
        self.slots.append(address)
        self.world.tell("!", "", f"{address} is to start")
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

    def _terminate(self, broker: Broker) -> None:
        self.world.tell("!", "", f"{broker.incarnation} is to go")
        if not broker.process.alive:
            del self.history.brokers[broker.address]
            return
        broker.process.run(broker.leave)
        in_peace = self.history.faults.over
        self.world.after(GRACE, lambda: self._grace_is_over(broker, in_peace))

    def _grace_is_over(self, broker: Broker, in_peace: bool) -> None:
        """While nothing is broken a broker drains in time; else it may have to be killed."""
        if broker.process.alive and in_peace:
            self.history.checker.still_there(broker)
        self.history.kill_broker(broker)
