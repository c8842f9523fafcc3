"""Termination proofs: processes that were reaped, nodes that were removed. A proof may be late, but is never wrong.

A process that ended is not gone while its journal may come back.
"""

from __future__ import annotations

from support.sim.engine.network import SimulatedNetwork
from support.sim.engine.world import MS, SECOND, World

HOST = "api"


class Supervisor:
    def __init__(self, world: World, network: SimulatedNetwork) -> None:
        self.world = world
        self.network = network
        self._gone: dict[str, int] = {}
        self._ended: dict[str, int] = {}

    def died(self, incarnation: str) -> None:
        """The proof mostly comes at once. For a lost node it takes longer."""
        late = self.world.chance(0.2)
        delay = self.world.between(3 * SECOND, 15 * SECOND) if late else self.world.between(50 * MS, 400 * MS)
        self._gone.setdefault(incarnation, self.world.now + delay)

    def ended(self, incarnation: str) -> None:
        """The process ended, and its journal may come back."""
        self._ended[incarnation] = self.world.now

    def proves_ended(self, host: str, incarnation: str) -> bool:
        return incarnation in self._ended and (HOST, host) not in self.network.cuts

    def proves_gone(self, host: str, incarnation: str) -> bool:
        since = self._gone.get(incarnation)
        return since is not None and self.world.now >= since and (HOST, host) not in self.network.cuts
