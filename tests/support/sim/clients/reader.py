"""A reader without a group: the whole topic from the earliest message, in the order of the DAG."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smq_core.invariants import Row
from smq_core.model.entities import Positions
from smq_core.reading.segment_dag import ReadProgress
from support.sim.clients.segment_reader import SegmentReader, advance
from support.sim.engine.world import MS, Process, Steps

if TYPE_CHECKING:
    from support.sim.histories.protocol import History


class SimulatedReader:
    """One start of a reader. The next start continues from ``checkpoint``, at which ``kept`` messages were read."""

    def __init__(self, history: History, name: str, start: Positions, poll_interval: int, read: list[Row]) -> None:
        self.world = history.world
        self.checker = history.checker
        self.name = name
        self.poll_interval = poll_interval
        self.process = Process(self.world, name, self.world.unique(f"{name}."))
        self.process.node = self
        self.reader = ReadProgress(positions=dict(start))
        self.source = SegmentReader(history, self.process, self.reader)
        self.from_start = not start and not read
        self.rows = read
        self.checkpoint: Positions = dict(start)
        self.kept = len(read)
        self.process.start(self._run())

    def _run(self) -> Steps:
        while True:
            yield from self.source.refresh()
            for segment in self.reader.readable():
                while found := (yield from self.source.read(segment)):
                    if self.reader.is_read(segment):
                        break
                    self.rows += found
                    advance(self.reader, found)
            if self.world.chance(0.3):
                self.checkpoint, self.kept = self.reader.committed(), len(self.rows)
            yield self.world.between(self.poll_interval // 2, self.poll_interval) if self.poll_interval > MS else MS
