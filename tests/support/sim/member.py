"""A member of a consumer group: reads what it is handed out, commits, and lets go of what it must."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smq_core.dag import Reader
from smq_core.errors import SmqError, StaleGeneration
from smq_core.invariants import Row
from support.sim.reading import SegmentReader, advance
from support.sim.world import MS, SECOND, Process, Steps

if TYPE_CHECKING:
    from support.sim.history import History


class Member:
    def __init__(self, history: History, group: str, name: str) -> None:
        self.history = history
        self.world = history.world
        self.network = history.network
        self.group = group
        self.name = name
        self.process = Process(self.world, name, self.world.unique(f"{name}."))
        self.process.node = self
        self.generation = -1
        self.reader = Reader()
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
        """What is missing in the answer is read no further, and committed before the next join says that it is."""
        try:
            assignment, nodes = yield self._call("join", self.process.name, self.generation)
        except SmqError:
            return
        self.reader.update(nodes)
        let_go = self.mine - set(assignment.positions)
        for segment, position in assignment.positions.items():
            if segment not in self.mine:
                self.reader.positions[segment] = self._committed[segment] = position
        self.mine = set(assignment.positions)
        if (yield from self._commit(let_go)):
            self.generation = assignment.generation

    def _commit(self, segments: set[str]) -> Steps:
        """True when nothing is left to commit."""
        positions = {s: p for s in segments if (p := self.reader.positions.get(s, 0)) > self._committed.get(s, 0)}
        if not positions:
            return True
        try:
            yield self._call("commit", self.process.name, self.generation, positions)
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
