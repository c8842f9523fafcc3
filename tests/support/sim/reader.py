"""A reader of its own: the whole topic from the earliest message, in the order of the DAG."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smq_core.dag import Reader
from smq_core.invariants import Row
from smq_core.model import Position
from support.sim.reading import SegmentReader, advance
from support.sim.world import MS, Process, Steps

if TYPE_CHECKING:
    from support.sim.history import History


class ReaderNode:
    """One life of a reader. ``checkpoint`` is what the next life goes on from, ``kept`` how much was read by then."""

    def __init__(self, history: History, name: str, start: Position, pace: int, read: list[Row]) -> None:
        self.world = history.world
        self.checker = history.checker
        self.name = name
        self.pace = pace
        self.process = Process(self.world, name, self.world.unique(f"{name}."))
        self.process.node = self
        self.reader = Reader(positions=dict(start))
        self.source = SegmentReader(history, self.process, self.reader)
        self.rows = read
        self.checkpoint: Position = dict(start)
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
            yield self.world.between(self.pace // 2, self.pace) if self.pace > MS else MS

    def caught_up(self) -> bool:
        """Read to the end of whatever is known; whether that is all, the checker knows."""
        return not [s for s in self.reader.readable() if self.reader.nodes[s].end is not None]
