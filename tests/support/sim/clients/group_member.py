"""A member of a consumer group: reads its assigned segments, commits, and releases revoked ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smq_core.errors import SmqError, StaleGeneration
from smq_core.invariants import Row
from smq_core.reading.segment_dag import ReadProgress
from support.sim.clients.segment_reader import SegmentReader, advance
from support.sim.engine.world import MS, SECOND, Process, Steps

if TYPE_CHECKING:
    from support.sim.histories.protocol import History


class SimulatedMember:
    def __init__(self, history: History, group: str, name: str) -> None:
        self.history = history
        self.world = history.world
        self.network = history.network
        self.group = group
        self.name = name
        self.process = Process(self.world, name, self.world.unique(f"{name}."))
        self.process.node = self
        self.generation = -1
        self.epoch = ""
        self.reader = ReadProgress()
        self.source = SegmentReader(history, self.process, self.reader)
        self.mine: set[str] = set()
        self.rows: list[Row] = []
        self._committed: dict[str, int] = {}
        self.process.start(self._run())

    def _run(self) -> Steps:
        while True:
            yield from self._join()
            yield from self.source.refresh()
            for _ in range(3):
                for segment in sorted(self.mine & set(self.reader.nodes)):
                    found = yield from self.source.read(segment)
                    self.rows += found
                    advance(self.reader, found)
                yield from self._commit(self.mine)
                yield self.world.between(100 * MS, 400 * MS)

    def _join(self) -> Steps:
        """Stops reading segments that are missing in the answer, and commits them before the next join reports it."""
        try:
            assignment, nodes = yield self._call("join", self.process.name, self.generation)
        except SmqError:
            return
        self.reader.update(nodes)
        revoked = self.mine - set(assignment.positions)
        for segment, position in assignment.positions.items():
            if segment not in self.mine:
                self.reader.positions[segment] = self._committed[segment] = position
        self.mine = set(assignment.positions)
        self.epoch = assignment.epoch
        if (yield from self._commit(revoked)):
            self.generation = assignment.generation

    def _commit(self, segments: set[str]) -> Steps:
        """True if nothing is left to commit."""
        positions = {s: p for s in segments if (p := self.reader.positions.get(s, 0)) > self._committed.get(s, 0)}
        if not positions:
            return True
        try:
            yield self._call("commit", self.process.name, self.generation, positions, self.epoch)
        except StaleGeneration:
            self.generation = -1
            self.mine = set()
            return True
        except SmqError:
            return False
        self._committed.update(positions)
        return True

    def _call(self, method: str, *args: object) -> object:
        leader = self.history.leader_for(self.name)
        return self.network.call(self.process, leader, method, self.group, *args, timeout=2 * SECOND)
