"""Elastic histories whose leaders are the leader process's own code (``loop_leader``). ``run(seed)`` as elsewhere.

What the leader logs is part of the story; what it logs as unexpected fails the history. One more thing must hold:

16. no leader holds a broker that lives for gone
"""

from __future__ import annotations

import sys
from collections.abc import MutableMapping
from random import Random
from typing import Any

from smq_core.invariants import Violation
from smq_proto.v1 import data_pb2 as pb
from support.sim.broker import Broker
from support.sim.elastic import ElasticFaults, ElasticHistory, quicker
from support.sim.history import Failure
from support.sim.history import run as run_history
from support.sim.leader import Leader
from support.sim.loop_leader import LoopLeader
from support.sim.replica_status import status_of
from support.sim.world import SECOND

UNEXPECTED = ("leader.round.failed", "topic.failed", "leader.task.failed", "fleet.failed")


class LoopFaults(ElasticFaults):
    def jump_clock(self) -> None:
        """Of a broker: the leader process's clock is one that never jumps."""
        broker = self.world.random.choice(list(self.history.brokers.values()))
        broker.skew += self.world.between(-10_000_000, 10_000_000)
        self._tell(f"the clock of {broker.process.name} is off by {broker.skew / 1e6:.3f} s")


class LoopHistory(ElasticHistory):
    faults_kind = LoopFaults

    def draw(self, dice: Random) -> None:
        super().draw(dice)
        self.world.after(SECOND, self._look)

    def _look(self) -> None:
        """Whether a leader gives up what lives: what that broker holds would be taken from the filer."""
        living = [broker for broker in self.brokers.values() if broker.process.alive]
        for leader in self.leaders.values():
            assert isinstance(leader, LoopLeader)
            for broker in living:
                known = leader.leading.registry.get(broker.incarnation)
                if known is not None and known.gone is not None:
                    words = f"{leader.process.name} holds it for gone, though it lives: {known.gone}"
                    self.checker.must([Violation(16, broker.incarnation, words)])
        self.world.after(SECOND, self._look)

    def make_leader(self, address: str) -> Leader:
        leader = LoopLeader(self, address)
        self.loops.append(leader.loop)
        return leader  # type: ignore[return-value]

    def load_of(self, broker: Broker) -> pb.BrokerStatus:
        return status_of(broker, self.topic)

    def log(self, leader: str, event: MutableMapping[str, Any]) -> None:
        super().log(leader, event)
        if event["event"] == "decision":
            names = event.get("segments", [])
            what = f"{event['action']} {', '.join(names[:3])}: {event['reason']}"
            self.decisions.append((self.world.now, leader, what))
        if event["event"] in UNEXPECTED:
            error = event.get("exc_info")
            raise error if isinstance(error, BaseException) else sys.exc_info()[1] or AssertionError(event["event"])


def run(seed: int) -> Failure | None:
    """One history from its seed."""
    with quicker():
        return run_history(seed, LoopHistory, f"PYTHONPATH=tests python -m simulation.picture --loop {seed} out.svg")


if __name__ == "__main__":
    failure = run(int(sys.argv[1]))
    print(failure or "all invariants hold")
    sys.exit(failure is not None)
