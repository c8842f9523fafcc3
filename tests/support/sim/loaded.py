"""A simulated producer under a load: each batch is what the load's shape asks for at that moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smq_core.invariants import Message
from support.sim.loads import Load, keys
from support.sim.messages import Piece
from support.sim.producer import Producer
from support.sim.world import MS, SECOND, Steps

if TYPE_CHECKING:
    from support.sim.elastic import ElasticHistory

STEP = 300 * MS
"""Between two batches; while there is more in hand than it may have, nothing is added."""


class LoadedProducer(Producer):
    """``batches`` are the steps that are left of its load."""

    def __init__(self, history: ElasticHistory, name: str, epoch: int, batches: int) -> None:
        self.load: Load = history.load
        self.share = STEP / SECOND / history.number_of_producers
        self.keys = keys(history.settings.partitions)
        super().__init__(history, name, epoch, batches)

    def _send(self) -> Steps:
        world = self.world
        while self.batches > 0 and not self.stopped:
            yield world.between(STEP * 3 // 4, STEP * 5 // 4)
            self.batches -= 1
            if self._in_hand() > 60:
                continue
            messages = tuple(self._of(p) for p in self.load.partitions(world.random, world.now, self.share))
            if messages:
                self._serial += 1
                self.waiting.append(Piece(self._serial, messages))
                self._enqueue()

    def _of(self, partition: int) -> Message:
        self._message += 1
        message = Message(self.name, self._message, self.keys[partition], partition, self.world.now)
        self.checker.sent(message)
        return message
