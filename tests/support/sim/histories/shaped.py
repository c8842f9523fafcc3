"""Histories with much of what others have seldom: long tails, journals, forgotten producers, new leaders, deletions.

``run(kind, seed)`` returns None, or the failure, as in ``protocol``.
"""

from __future__ import annotations

from random import Random

from smq_core.model.entities import Durability
from support.sim.clients.kafka_producer import SimulatedKafkaProducer
from support.sim.engine.world import MS, SECOND
from support.sim.histories.elastic import ElasticHistory, shortened_waits
from support.sim.histories.groups import LONG_PAUSE, GroupHistory
from support.sim.histories.journal_scenario import FAULTS, GONE, KEPT
from support.sim.histories.protocol import History, HistoryFailure
from support.sim.histories.protocol import run as run_history


class QuietHistory(History):
    """The flush interval stretches. It is drawn apart from all else: the rest is as in the seed's protocol history."""

    def __init__(self, seed: int) -> None:
        self.flush_max_interval = Random(f"flush of {seed}").choice([5, 20, 60]) * SECOND
        super().__init__(seed)


class JournalHistory(History):
    """All replicas of a segment die, again and again, and have long tails in their journals."""

    journal_share = 1.0
    journal_states = (
        {KEPT: 1},
        {KEPT: 3, "truncated": 2, "damaged": 1, "headless": 2},
        {KEPT: 1, "truncated": 1, "headless": 2, GONE: 1, "other boot": 0.5},
        {"headless": 3, "truncated": 1, GONE: 1},
        {KEPT: 2, "older": 1},
    )
    durabilities = (Durability.REPLICATED,)
    flush_intervals = (2 * SECOND, 4 * SECOND)

    def draw(self, dice: Random) -> None:
        super().draw(dice)
        self.journals.kinds = list(FAULTS)


class ForgettingHistory(History):
    """Segments forget producers whose batches are on the way, or die with the primary."""

    producers_are_forgotten = True


class LeaderChangeHistory(History):
    """GETs are stale. PUTs come late, so a former leader's may be applied after its successor has read the layout."""

    def draw(self, dice: Random) -> None:
        super().draw(dice)
        own = Random(f"leader changes of {self.world.seed}")
        self.store.faults.late = own.choice([0.05, 0.2])
        self.store.faults.stale_get = Random(f"stale {self.world.seed}").choice([0.1, 0.4])
        for _ in range(own.randint(3, 6)):
            at = int(own.uniform(0.2, 1) * self.horizon)
            self.faults.soon(at, self.faults.request)
            self.faults.soon(at + own.randint(0, SECOND), self.faults.kill_leader)


class DeletionHistory(ElasticHistory):
    """An administrator deletes the topic."""

    deletion_share = 1.0


class DrainedDeletionHistory(DeletionHistory):
    """All brokers are terminated when the topic is deleted, and the filer is away, so that nothing is sealed."""

    def draw(self, dice: Random) -> None:
        super().draw(dice)
        self._drain_with_the_deletion()

    def _drain_with_the_deletion(self) -> None:
        if not self.deleting.gone:
            self.world.after(20 * MS, self._drain_with_the_deletion)
        elif self.faults.kinds and not self.faults.over:
            self.faults.filer_away()
            for address in list(self.deployment.slots):
                if address in self.brokers:
                    self.deployment.replace(self.brokers[address])


class ResetHistory(GroupHistory):
    """Administrators set groups back again and again, while segments change and leaders pause."""

    def draw(self, dice: Random) -> None:
        super().draw(dice)
        own = Random(f"resets {self.world.seed}")
        for _ in range(own.randint(3, 6)):
            at = int(own.uniform(0.1, 1) * (self.horizon - LONG_PAUSE))
            self.world.after(at, self._change)
            for action in (self.faults.request, self.faults.pause_leader, self.faults.request):
                self.faults.soon(max(0, at + own.randint(-SECOND, 2 * SECOND)), action)


class KafkaHistory(History):
    """Idempotent producers of Kafka beside the others, while segments split, merge and roll."""

    def draw(self, dice: Random) -> None:
        super().draw(dice)
        own = Random(f"Kafka producers of {self.world.seed}")
        for number in range(own.randint(1, 3)):
            self.kafka_producers.append(SimulatedKafkaProducer(self, f"kafka{number}", own.randint(10, 60)))
        for _ in range(own.randint(2, 5)):
            self.faults.soon(int(own.uniform(0.1, 1) * self.horizon), self.faults.request)


KINDS: dict[str, type[History]] = {
    "quiet": QuietHistory,
    "journals": JournalHistory,
    "forgetting": ForgettingHistory,
    "leader-changes": LeaderChangeHistory,
    "deletions": DeletionHistory,
    "drained-deletions": DrainedDeletionHistory,
    "resets": ResetHistory,
    "kafka": KafkaHistory,
}


def run(kind: str, seed: int) -> HistoryFailure | None:
    """Runs the history of a seed. ``kind`` is a key of ``KINDS``."""
    with shortened_waits():
        return run_history(seed, KINDS[kind], f"PYTHONPATH=tests python -m support.sim.histories {kind} {seed}")
