"""A consumer group: its members share the segments that may be read, each segment with one member at a time.

A segment is assigned only when the group's *committed* positions of all its predecessors equal their ends. Committed
means durable: a commit is taken (``commit``), written by whoever drives this (``flushing``), and counts from then on
(``flushed``). Commits never go back.

Every change of who owns what begins a new generation. A segment that moves is handed over in two steps: first it is
missing in its owner's assignment, while commits from it are still taken; when the owner has said that it knows (it
joins again with that generation, after it committed what it had delivered), or after HANDOVER_TIMEOUT, it is assigned
to the next one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from smq_core.dag import Node, Reader, is_removed
from smq_core.errors import StaleGeneration
from smq_core.numbers import NONE, Numbers, union

MEMBER_TIMEOUT = 6_000_000
HANDOVER_TIMEOUT = 5_000_000


@dataclass(slots=True)
class Member:
    """``first`` and ``told`` are the generations of the first and the last assignment that it was given."""

    heard_at: int
    first: int | None = None
    told: int = -1


@dataclass(frozen=True, slots=True)
class Tenure:
    """One segment with one member, from a generation on."""

    member: str
    since: int


@dataclass(frozen=True, slots=True)
class Handover:
    """A segment that was taken from a member which may not know it yet."""

    tenure: Tenure
    generation: int
    """In which its assignment lacks the segment for the first time."""
    until: int


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a member may read: ``positions`` is {segment: where to go on}."""

    generation: int
    positions: Mapping[str, int]


@dataclass(slots=True)
class Group:
    """One group on one topic. Times are microseconds."""

    name: str
    generation: int = 0
    reader: Reader = field(default_factory=Reader)
    members: dict[str, Member] = field(default_factory=dict)
    owners: dict[str, Tenure] = field(default_factory=dict)
    handovers: dict[str, Handover] = field(default_factory=dict)
    pending: dict[str, int] = field(default_factory=dict)
    """Commits that were taken and are not being written yet."""
    in_flight: dict[str, int] = field(default_factory=dict)
    """Commits that are being written."""
    removed: Numbers = NONE
    """Numbers of the segments that retention has removed: positions in them are not written any more."""

    @property
    def positions(self) -> dict[str, int]:
        """The committed positions."""
        return self.reader.positions

    # ---- members

    def outdated_by(self, generation: int) -> bool:
        """True when a member was told a generation that this leader never reached: another one served the group since.

        Then everything here is old, and has to be loaded again.
        """
        return generation > self.generation

    def join(self, member: str, now: int, generation: int | None = None) -> Assignment:
        """A new member, or the heartbeat of an old one, with the generation of the assignment it acts by.

        Returns its assignment. What is missing in it, as compared to the one before, must be read no further and
        committed before the next join.
        """
        known = self.members.get(member)
        if known is None:
            known = self.members[member] = Member(now)
        known.heard_at = now
        # One that was told by an earlier leader, or to an earlier member of that name, says nothing of this group.
        if generation is not None and known.first is not None and known.first <= generation <= known.told:
            done = [s for s, h in self.handovers.items() if h.tenure.member == member and h.generation <= generation]
            for segment in done:
                del self.handovers[segment]
        self.assign(now)
        known.first = self.generation if known.first is None else known.first
        known.told = self.generation
        return Assignment(self.generation, self.of(member))

    def leave(self, member: str, now: int) -> None:
        """The member has committed what it wanted to, and reads no more."""
        if self.members.pop(member, None) is not None:
            self.handovers = {s: h for s, h in self.handovers.items() if h.tenure.member != member}
            self.assign(now)

    def expire(self, now: int) -> list[str]:
        """Members that were not heard for MEMBER_TIMEOUT leave; handovers that last too long end."""
        silent = [name for name, member in self.members.items() if now - member.heard_at > MEMBER_TIMEOUT]
        for name in silent:
            self.leave(name, now)
        late = [segment for segment, handover in self.handovers.items() if now >= handover.until]
        for segment in late:
            del self.handovers[segment]
        if late:
            self.assign(now)
        return silent

    # ---- the DAG

    def update(self, nodes: Mapping[str, Node], now: int, removed: Numbers = NONE) -> None:
        """The whole DAG as it is known now: what became readable is handed out, what was removed counts as read.

        A position beyond an end, after a loss, counts as read too, and stays: commits never go back.
        """
        self.removed = union(self.removed, removed)
        for name in [name for name in self.reader.nodes if name not in nodes]:
            del self.reader.nodes[name]
        before = dict(self.positions)
        self.reader.update(nodes)
        self.positions.update({name: max(offset, self.positions.get(name, 0)) for name, offset in before.items()})
        self.assign(now)

    # ---- commits

    def commit(self, member: str, generation: int, positions: Mapping[str, int]) -> bool:
        """Takes a member's positions. True when any of them has to be written, or is being written.

        Raises StaleGeneration when the member is unknown, or would move a segment that it does not own (any more)
        since that generation or an older one; then nothing has changed.
        """
        if member not in self.members:
            raise StaleGeneration(
                f"{member} is no member of group {self.name} (any more): join again", generation=self.generation
            )
        moved = {s: offset for s, offset in positions.items() if offset > self._taken(s)}
        foreign = sorted(s for s in moved if not self._may_commit(member, generation, s))
        if foreign:
            raise StaleGeneration(
                f"{', '.join(foreign)} is not assigned to {member} in generation {self.generation}: join again, "
                "and commit the others without it",
                generation=self.generation,
                segments=foreign,
            )
        self.pending.update(moved)
        return any(s in self.pending or s in self.in_flight for s in positions)

    def _may_commit(self, member: str, generation: int, segment: str) -> bool:
        handover = self.handovers.get(segment)
        tenure = handover.tenure if handover is not None else self.owners.get(segment)
        return tenure is not None and tenure.member == member and tenure.since <= generation <= self.generation

    def _taken(self, segment: str) -> int:
        durable = self.positions.get(segment, -1)
        return max(durable, self.in_flight.get(segment, -1), self.pending.get(segment, -1))

    def flushing(self) -> Mapping[str, int]:
        """The positions to write now; answer with ``flushed`` or ``flush_failed`` before asking again."""
        assert not self.in_flight, "one write at a time"
        self.in_flight, self.pending = self.pending, {}
        after = Reader(dict(self.reader.nodes), dict(self.positions))
        after.update({})
        for segment, offset in self.in_flight.items():
            after.advance(segment, offset)
        return {s: offset for s, offset in after.committed().items() if not is_removed(s, self.removed)}

    def flushed(self, now: int) -> None:
        """They are durable."""
        for segment, offset in self.in_flight.items():
            self.reader.advance(segment, offset)
        self.in_flight = {}
        for segment in [s for s in self.positions if is_removed(s, self.removed) and s not in self.pending]:
            del self.positions[segment]
        self.assign(now)

    def flush_failed(self) -> None:
        """They are not known to be durable: they have to be written again."""
        self.pending = {**self.in_flight, **self.pending}
        self.in_flight = {}

    # ---- who reads what

    def assign(self, now: int) -> None:
        """Hands out what may be read and has no owner, takes back what is read, and evens out what members have."""
        before = dict(self.owners)
        readable = self.reader.readable()
        may_own = set(readable)
        self.owners = {s: t for s, t in self.owners.items() if s in may_own and t.member in self.members}
        self.handovers = {s: h for s, h in self.handovers.items() if s in may_own}
        load = dict.fromkeys(sorted(self.members), 0)
        for tenure in self.owners.values():
            load[tenure.member] += 1
        given: dict[str, str] = {}
        for segment in readable:
            busy = segment in self.handovers or segment in self.pending or segment in self.in_flight
            if segment not in self.owners and not busy and load:
                member = _least(load)
                given[segment] = member
                load[member] += 1
        taken = self._to_even_out(load, given)
        if self.owners.keys() != before.keys() or given or taken:
            self.generation += 1
        for segment, member in given.items():
            self.owners[segment] = Tenure(member, self.generation)
        for segment in taken:
            tenure = self.owners.pop(segment)
            self.handovers[segment] = Handover(tenure, self.generation, now + HANDOVER_TIMEOUT)

    def _to_even_out(self, load: dict[str, int], given: Mapping[str, str]) -> list[str]:
        """The segments to take away, so that in the end no member has two more than another."""
        if not load:
            return []
        for _ in self.handovers:
            load[_least(load)] += 1
        old = [s for s in reversed(self.owners) if s not in given]
        taken: list[str] = []
        while True:
            most = max(load, key=lambda m: load[m])
            least = _least(load)
            mine = next((s for s in old if s not in taken and self.owners[s].member == most), None)
            if load[most] - load[least] < 2 or mine is None:
                return taken
            taken.append(mine)
            load[most] -= 1
            load[least] += 1

    @property
    def assignment(self) -> Mapping[str, str]:
        """{segment: member} of everything that is owned now."""
        return {segment: tenure.member for segment, tenure in self.owners.items()}

    def of(self, member: str) -> dict[str, int]:
        """The member's segments and where to go on in each."""
        return {s: self.positions.get(s, 0) for s, tenure in self.owners.items() if tenure.member == member}


def _least(load: Mapping[str, int]) -> str:
    return min(load, key=lambda m: load[m])
