"""A simulated producer under a load: each batch follows the load's shape at that moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smq_core.invariants import Message
from support.sim.clients.loads import ElasticLoad, keys
from support.sim.clients.messages import SimulatedSubBatch
from support.sim.clients.producer import SimulatedProducer
from support.sim.engine.world import MS, SECOND, Steps

if TYPE_CHECKING:
    from support.sim.histories.elastic import ElasticHistory

# The pause between two batches. While its buffer is full, the producer adds nothing.
STEP = 300 * MS


class LoadedProducer(SimulatedProducer):
    """``batches`` are the remaining steps of its load."""

    def __init__(self, history: ElasticHistory, name: str, epoch: int | None, batches: int, run: str = "") -> None:
        self.load: ElasticLoad = history.load
        self.share = STEP / SECOND / history.number_of_producers
        self.keys = keys(history.settings.partitions)
        super().__init__(history, name, epoch, batches, run)

    def _send(self) -> Steps:
        world = self.world
        while self.batches > 0 and not self.stopped:
            yield world.between(STEP * 3 // 4, STEP * 5 // 4)
            self.batches -= 1
            if self._has_unsent() > 60 or world.now < self._idle_until:
                continue
            messages = tuple(self._of(p) for p in self.load.partitions(world.random, world.now, self.share))
            if messages:
                self._serial += 1
                yield from self._hand_over(SimulatedSubBatch(self._serial, messages))

    def _of(self, partition: int) -> Message:
        self._message += 1
        message = Message(self.name, self._message, self.keys[partition], partition, self.world.now)
        self.checker.sent(message)
        return message
