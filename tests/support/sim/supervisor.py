"""Who is proved gone: processes that were reaped, nodes that were removed. The proof may come late, never wrongly."""

from __future__ import annotations

from support.sim.network import Network
from support.sim.world import MS, SECOND, World

HOST = "api"


class Supervisor:
    def __init__(self, world: World, network: Network) -> None:
        self.world = world
        self.network = network
        self._gone: dict[str, int] = {}

    def died(self, incarnation: str) -> None:
        """Mostly known at once; a lost node takes longer."""
        late = self.world.chance(0.2)
        delay = self.world.between(3 * SECOND, 15 * SECOND) if late else self.world.between(50 * MS, 400 * MS)
        self._gone.setdefault(incarnation, self.world.now + delay)

    def proves_gone(self, host: str, incarnation: str) -> bool:
        since = self._gone.get(incarnation)
        return since is not None and self.world.now >= since and (HOST, host) not in self.network.cuts
