"""A member of a consumer group: reads what it is handed out, commits, and joins again when its generation is over."""

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
                yield from self._commit()
                yield self.world.between(100 * MS, 400 * MS)

    def _join(self) -> Steps:
        leader = self.history.leader_for(self.name)
        try:
            answer = yield self.network.call(
                self.process, leader, "join", self.group, self.process.name, timeout=2 * SECOND
            )
        except SmqError:
            return
        generation, positions, nodes = answer
        if generation != self.generation:
            self.generation = generation
            self.reader = self.source.reader = Reader()
            self._committed = {}
        self.reader.update(nodes)
        self.mine = set(positions)
        for segment, position in positions.items():
            self.reader.advance(segment, position)

    def _commit(self) -> Steps:
        positions = {s: p for s in self.mine if (p := self.reader.positions.get(s, 0)) > self._committed.get(s, 0)}
        if not positions:
            return
        leader = self.history.leader_for(self.name)
        try:
            yield self.network.call(
                self.process,
                leader,
                "commit",
                self.group,
                self.process.name,
                self.generation,
                positions,
                timeout=2 * SECOND,
            )
        except StaleGeneration:
            self.generation = -1
            self.mine = set()
        except SmqError:
            return
        else:
            self._committed.update(positions)
