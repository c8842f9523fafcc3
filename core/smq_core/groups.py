"""A consumer group: its members share the segments that may be read, each segment with one member at a time.

A segment is assigned only when the group's *committed* positions of all its predecessors equal their ends. Every
change of members begins a new generation; commits of an older generation are refused, and no commit goes back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from smq_core.dag import Node, Reader
from smq_core.errors import StaleGeneration

MEMBER_TIMEOUT = 6_000_000


@dataclass(slots=True)
class Group:
    """One group on one topic. Times are microseconds."""

    name: str
    generation: int = 0
    reader: Reader = field(default_factory=Reader)
    members: dict[str, int] = field(default_factory=dict)
    assignment: dict[str, str] = field(default_factory=dict)
    """segment -> member"""

    @property
    def positions(self) -> dict[str, int]:
        return self.reader.positions

    def join(self, member: str, now: int) -> None:
        """A new member, or the heartbeat of an old one."""
        new = member not in self.members
        self.members[member] = now
        if new:
            self._next_generation()

    def leave(self, member: str) -> None:
        if self.members.pop(member, None) is not None:
            self._next_generation()

    def expire(self, now: int) -> list[str]:
        """Members that were not heard for MEMBER_TIMEOUT leave."""
        silent = [m for m, heard in self.members.items() if now - heard > MEMBER_TIMEOUT]
        for member in silent:
            self.leave(member)
        return silent

    def update(self, nodes: Mapping[str, Node]) -> None:
        """Newer knowledge of the DAG: segments that became readable are handed out."""
        self.reader.update(nodes)
        self.assign()

    def commit(self, member: str, generation: int, positions: Mapping[str, int]) -> dict[str, int]:
        """Takes a member's positions and returns the ones that moved.

        Raises StaleGeneration when the member is unknown, of an older generation, or does not own a segment.
        """
        if member not in self.members or generation != self.generation:
            raise StaleGeneration(
                f"group {self.name} is at generation {self.generation}: join again", generation=self.generation
            )
        for segment in positions:
            if self.assignment.get(segment) != member:
                raise StaleGeneration(f"{segment} is not assigned to {member}: join again", generation=self.generation)
        moved = {s: offset for s, offset in positions.items() if offset > self.positions.get(s, 0)}
        for segment, offset in moved.items():
            self.reader.advance(segment, offset)
        self.assign()
        return moved

    def assign(self) -> None:
        """Hands out what may be read and has no owner; takes back what is read. Owners keep what they have."""
        readable = self.reader.readable()
        may_own = set(readable)
        self.assignment = {s: m for s, m in self.assignment.items() if s in may_own and m in self.members}
        load = dict.fromkeys(sorted(self.members), 0)
        for member in self.assignment.values():
            load[member] += 1
        for segment in readable:
            if segment not in self.assignment and load:
                member = min(load, key=lambda m: load[m])
                self.assignment[segment] = member
                load[member] += 1

    def of(self, member: str) -> dict[str, int]:
        """The member's segments and where to go on in each."""
        return {s: self.positions.get(s, 0) for s, m in self.assignment.items() if m == member}

    def _next_generation(self) -> None:
        """Everything is handed out anew, evenly: who had a segment must not commit it any more."""
        self.generation += 1
        self.assignment = {}
        self.assign()
