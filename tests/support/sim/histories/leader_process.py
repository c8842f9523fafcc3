"""Elastic histories whose leaders run the leader process's own code (``process_leader``). ``run(seed)`` as elsewhere.

The story has the leader's log lines, and an unexpected error in the log fails the history. One more invariant holds:

16. No leader considers a running broker gone.
"""

from __future__ import annotations

import sys
from collections.abc import MutableMapping
from random import Random
from typing import Any

from smq_core.invariants import Violation
from smq_proto.v1 import data_pb2 as pb
from support.sim.brokers.broker import SimulatedBroker
from support.sim.brokers.status import status_of
from support.sim.engine.world import SECOND
from support.sim.histories.elastic import ElasticFaultSchedule, ElasticHistory, shortened_waits
from support.sim.histories.protocol import HistoryFailure
from support.sim.histories.protocol import run as run_history
from support.sim.leaders.process_leader import ProcessLeader
from support.sim.leaders.protocol_leader import SimulatedLeader

UNEXPECTED = ("reconcile.failed", "topic.reconcile_failed", "task.failed", "fleet.reconcile_failed")


class LeaderProcessFaultSchedule(ElasticFaultSchedule):
    def jump_clock(self) -> None:
        """Changes the clock of a broker only, because the leader process uses a clock that never jumps."""
        broker = self.world.random.choice(list(self.history.brokers.values()))
        broker.skew += self.world.between(-10_000_000, 10_000_000)
        self._log(f"the clock of {broker.process.name} is off by {broker.skew / 1e6:.3f} s")


class LeaderProcessHistory(ElasticHistory):
    faults_kind = LeaderProcessFaultSchedule
    journal_share = 0

    def draw(self, dice: Random) -> None:
        self._all_leaders: list[ProcessLeader] = []
        super().draw(dice)
        self.world.after(SECOND, self._check_fleet)

    def _check_fleet(self) -> None:
        """Checks that no leader gives up a running broker, whose segments it would seal from the filer."""
        living = [broker for broker in self.brokers.values() if broker.process.alive]
        for leader in self.leaders.values():
            assert isinstance(leader, ProcessLeader)
            for broker in living:
                known = leader.parts.registry.get(broker.incarnation)
                if known is not None and known.gone is not None:
                    words = f"{leader.process.name} holds it for gone, though it lives: {known.gone}"
                    self.checker.must([Violation(16, broker.incarnation, words)])
        self.world.after(SECOND, self._check_fleet)

    def make_leader(self, address: str) -> SimulatedLeader:
        leader = ProcessLeader(self, address)
        self.loops.append(leader.loop)
        self._all_leaders.append(leader)
        return leader  # type: ignore[return-value]

    def finish_story(self) -> None:
        """Each leader has kept the story of the topic, as a real one does."""
        lines = self.world.story.lines
        for leader in self._all_leaders:
            name = leader.process.name
            lines += [(it.at, name, it.segment, str(it)) for it in leader.machine.story.events]
        lines.sort(key=lambda line: line[0])

    def load_of(self, broker: SimulatedBroker) -> pb.BrokerStatus:
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


def run(seed: int) -> HistoryFailure | None:
    """Runs the history of a seed."""
    with shortened_waits():
        return run_history(
            seed, LeaderProcessHistory, f"PYTHONPATH=tests python -m simulation.picture --loop {seed} out.svg"
        )
