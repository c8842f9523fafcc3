"""A member of a group as the client library makes it, with its own rules of what is committed and forgotten.

``MemberPositions`` and ``EndedSegments`` are the library's. The program commits all that it has read, or does so
after many messages; then the library commits segments that have ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from smq.consuming.groups.ended_segments import EndedSegments
from smq.consuming.groups.member_positions import MemberPositions
from smq_core.errors import InvalidRequest, SmqError, StaleGeneration
from smq_core.invariants import Violation
from support.sim.clients.group_member import SimulatedMember
from support.sim.clients.segment_reader import advance
from support.sim.engine.world import MS, Steps

if TYPE_CHECKING:
    from support.sim.histories.groups import GroupHistory

COMMIT_ATTEMPTS = 5
# Messages between two commits of a program that commits rarely.
COMMIT_EVERY = 25
# More messages than a history has.
FAR_BEYOND = 10_000


class GroupProgram(SimulatedMember):
    history: GroupHistory

    def __init__(self, history: GroupHistory, group: str, name: str) -> None:
        self.positions = MemberPositions()
        self.ended = EndedSegments(group)
        self.commits_rarely = history.world.chance(0.5)
        self.acknowledged = -1
        self._committed_rows = 0
        super().__init__(history, group, name)

    def _run(self) -> Steps:
        while True:
            yield from self._join()
            yield from self.source.refresh()
            for _ in range(3):
                for segment in sorted(self.mine & set(self.reader.nodes)):
                    yield from self._read(segment)
                if not self.commits_rarely or len(self.rows) - self._committed_rows >= COMMIT_EVERY:
                    self._committed_rows = len(self.rows)
                    yield from self._commit_positions(self.positions.uncommitted)
                else:
                    yield from self._commit_positions(self.ended.ends)
                if self.world.chance(0.1):
                    yield from self._commit_too_much()
                if self.history.faults.over and self.world.chance(0.2):
                    yield from self._commit_without_the_library()
                yield self.world.between(100 * MS, 400 * MS)

    def _read(self, segment: str) -> Steps:
        found = yield from self.source.read(segment)
        if segment not in self.mine:
            return
        if found:
            self.rows += found
            advance(self.reader, found)
            self.history.checker.delivered(self.group, self.positions.epoch, found)
            self.positions.batch_returned(segment, found[-1].offset + 1)
            self.positions.batch_finished()
        node = self.reader.nodes.get(segment)
        at_end = node is not None and node.end is not None and self._position(segment) >= node.end
        if not at_end or node is None or node.end is None or segment in self.ended.ends:
            return
        if self.positions.segment_ended(segment, node.end):
            self.ended.add(segment, node.end, self.world.now / 1e6)

    def _position(self, segment: str) -> int:
        return self.reader.positions.get(segment, 0)

    def _join(self) -> Steps:
        """As the library: what is revoked is committed before a heartbeat acknowledges that."""
        if not (yield from self._heartbeat()):
            return
        generation = self.generation
        yield from self._commit_positions({s: p for s, p in self.positions.uncommitted.items() if s not in self.mine})
        if not self.positions.uncommitted.keys() - self.mine:
            self.acknowledged = generation

    def _heartbeat(self) -> Steps:
        """False if no leader answers."""
        try:
            assignment, nodes = yield self._call("join", self.process.name, self.acknowledged)
        except SmqError:
            return False
        positions = self.positions
        if positions.epoch is None:
            positions.epoch = assignment.epoch
        elif positions.epoch != assignment.epoch:
            self.reader.positions.clear()
            self.mine.clear()
            positions.reset(assignment.epoch)
            self.ended.read_again(self.ended.ends)
            self.history.found["a member forgot its positions"] += 1
        self.reader.update(nodes)
        for segment, position in assignment.positions.items():
            if segment not in self.mine:
                self.reader.positions[segment] = positions.start(segment, position)
            elif positions.was_read_by_another(segment, position, self._position(segment)):
                self.reader.positions[segment] = position
        self.mine, self.generation = set(assignment.positions), assignment.generation
        positions.assign(assignment.positions)
        self.ended.keep(assignment.positions)
        return True

    def _commit_positions(self, wanted: Mapping[str, int]) -> Steps:
        """Nothing may be forgotten of a segment that the member has had all the time."""
        epoch = self.positions.epoch
        yield from self._commit_or_keep(wanted)
        kept = self.positions.uncommitted
        for segment in wanted.keys() & self.mine if self.positions.epoch == epoch else ():
            known = max(kept.get(segment, 0), self.positions.start(segment, self.positions.assigned[segment]))
            if known < wanted[segment]:
                words = f"{self.name} wanted to commit {wanted[segment]}, and knows {known} afterwards"
                self.history.checker.must([Violation(12, segment, words)])

    def _commit_or_keep(self, wanted: Mapping[str, int]) -> Steps:
        """A refused commit is made after another heartbeat, without what others have by then."""
        left, epoch = dict(wanted), self.positions.epoch
        for _ in range(COMMIT_ATTEMPTS):
            if not left:
                break
            try:
                yield self._call("commit", self.process.name, self.generation, left, epoch)
                break
            except StaleGeneration as error:
                refused = set(error.segments)
            except InvalidRequest as error:
                self.history.checker.must([Violation(10, self.name, f"a commit was refused for good: {error.message}")])
            except SmqError:
                return
            self.history.found["a commit was refused"] += 1
            if not self.joins_again(wanted):
                return
            if not (yield from self._heartbeat()) or self.positions.epoch != epoch:
                return
            left = {s: offset for s, offset in left.items() if s not in refused or s in self.mine}
        else:
            return
        if self.positions.epoch == epoch:
            self.positions.commit(wanted, left)
            self.ended.committed(left)

    def joins_again(self, refused: Mapping[str, int]) -> bool:
        """Whether to try a refused commit again."""
        return True

    def _commit_too_much(self) -> Steps:
        """A program with an error: it counts one message that it was not given."""
        wanted = {segment: self._position(segment) + 1 for segment in self.mine}
        try:
            wanted = self.positions.committable(wanted, self._position)
        except InvalidRequest:
            self.history.found["a commit beyond the end"] += 1
            return
        yield from self._commit_or_keep(wanted)

    def _commit_without_the_library(self) -> Steps:
        """The leader refuses what nobody can have read, if a replica can say so."""
        found = sorted(segment for segment in self.mine if self.history.all_replicas_answer(segment))
        if not found:
            return
        segment = self.world.random.choice(found)
        try:
            yield self._call("commit", self.process.name, self.generation, {segment: FAR_BEYOND}, self.positions.epoch)
        except InvalidRequest:
            self.history.found["the leader refused a position"] += 1
            return
        except SmqError:
            return
        if self.history.all_replicas_answer(segment):
            self.history.checker.must([Violation(10, segment, f"offset {FAR_BEYOND} was committed")])
