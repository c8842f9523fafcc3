"""A consumer group: its members share the segments that may be read, each segment with one member at a time.

A segment is assigned only when the group's *committed* positions of all its predecessors equal their ends. Committed
means durable: the group accepts a commit (``commit``), its caller writes it (``begin_flush``), and only then it counts
(``flushed``). Commits never go back.

Every change of ownership begins a new generation. A segment is handed over in two steps. First the owner's assignment
lacks it, while commits from it are still accepted. The segment is assigned to the next member when the owner has joined
again with that generation, after it committed what it had delivered, or after HANDOVER_TIMEOUT.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from smq_core.errors import StaleGeneration
from smq_core.model.entities import SECOND, Micros
from smq_core.model.interval_set import EMPTY, IntervalSet, union
from smq_core.reading.segment_dag import ReadProgress, SegmentNode, is_removed

MEMBER_TIMEOUT: Micros = 6 * SECOND
HANDOVER_TIMEOUT: Micros = 5 * SECOND


@dataclass(slots=True)
class GroupMember:
    """One member of the group."""

    last_heartbeat_at: Micros
    first_generation: int | None = None
    """The generation of the first assignment that it received."""
    last_generation: int = -1
    """The generation of the last one."""
    ended: Mapping[str, int] = field(default_factory=dict)
    """Segments of which it has returned every message to its program, and their ends, which it has not committed."""


@dataclass(frozen=True, slots=True)
class Ownership:
    """A segment's owner."""

    member: str
    since: int
    """The first generation of the ownership."""


@dataclass(frozen=True, slots=True)
class Handover:
    """A segment that was revoked from a member which may still read it."""

    ownership: Ownership
    generation: int
    """The first generation in which its assignment lacks the segment."""
    until: Micros


@dataclass(frozen=True, slots=True)
class Assignment:
    """The segments that a member may read. ``positions`` is ``{segment: next offset}``."""

    generation: int
    positions: Mapping[str, int]
    epoch: str = ""
    """See ``Group.epoch``."""


@dataclass(slots=True, kw_only=True)
class Group:
    """One group on one topic. Times are microseconds."""

    name: str
    generation: int = 0
    reader: ReadProgress = field(default_factory=ReadProgress)
    members: dict[str, GroupMember] = field(default_factory=dict)
    owners: dict[str, Ownership] = field(default_factory=dict)
    handovers: dict[str, Handover] = field(default_factory=dict)
    pending: dict[str, int] = field(default_factory=dict)
    """Accepted commits whose write has not begun."""
    in_flight: dict[str, int] = field(default_factory=dict)
    """Commits that are being written."""
    removed: IntervalSet = EMPTY
    """The numbers of the segments that retention has removed. Positions in them are no longer written."""
    epoch: str = ""
    """Changes when an administrator sets the positions or deletes the group. What was read before does not count."""

    @property
    def positions(self) -> dict[str, int]:
        """The committed positions."""
        return self.reader.positions

    # ---- members

    def is_outdated_by(self, generation: int) -> bool:
        """True if a member has a generation that this leader never reached, so another leader served the group since.

        The state is outdated then and must be loaded again.
        """
        return generation > self.generation

    def join(
        self, member: str, now: Micros, generation: int | None = None, ended: Mapping[str, int] | None = None
    ) -> Assignment:
        """Adds a member, or takes the heartbeat of a known one with the generation of its current assignment.

        Returns its new assignment. The member must stop reading segments that are no longer in it, and commit them
        before the next join.
        """
        known = self.members.get(member)
        if known is None:
            known = self.members[member] = GroupMember(now)
        known.last_heartbeat_at, known.ended = now, dict(ended or {})
        # A generation from an earlier leader, or of an earlier member of that name, is not one of this group.
        if (
            generation is not None
            and known.first_generation is not None
            and known.first_generation <= generation <= known.last_generation
        ):
            done = [s for s, h in self.handovers.items() if h.ownership.member == member and h.generation <= generation]
            for segment in done:
                del self.handovers[segment]
        self.assign(now)
        known.first_generation = self.generation if known.first_generation is None else known.first_generation
        known.last_generation = self.generation
        return Assignment(self.generation, self.positions_of(member), self.epoch)

    def leave(self, member: str, now: Micros) -> None:
        """Removes a member that has committed its positions and stopped to read."""
        if self.members.pop(member, None) is not None:
            self.handovers = {s: h for s, h in self.handovers.items() if h.ownership.member != member}
            self.assign(now)

    def expire(self, now: Micros) -> list[str]:
        """Removes members without a heartbeat for MEMBER_TIMEOUT, and ends handovers that last too long."""
        unresponsive = [
            name for name, member in self.members.items() if now - member.last_heartbeat_at > MEMBER_TIMEOUT
        ]
        for name in unresponsive:
            self.leave(name, now)
        overdue = [segment for segment, handover in self.handovers.items() if now >= handover.until]
        for segment in overdue:
            del self.handovers[segment]
        if overdue:
            self.assign(now)
        return unresponsive

    def compensate_pause(self, microseconds: Micros) -> None:
        """No heartbeat could arrive in that time, so it counts neither for members nor for handovers."""
        for member in self.members.values():
            member.last_heartbeat_at += microseconds
        self.handovers = {s: replace(h, until=h.until + microseconds) for s, h in self.handovers.items()}

    # ---- the DAG

    def update(self, nodes: Mapping[str, SegmentNode], now: Micros, removed: IntervalSet = EMPTY) -> None:
        """Replaces the known DAG. Assigns segments that became readable; removed segments count as read.

        After a loss, a position beyond a segment's end counts as read too. It stays, because commits never go back.
        """
        self.removed = union(self.removed, removed)
        for name in [name for name in self.reader.nodes if name not in nodes]:
            del self.reader.nodes[name]
        before = dict(self.positions)
        self.reader.update(nodes)
        self.positions.update({name: max(offset, self.positions.get(name, 0)) for name, offset in before.items()})
        self.assign(now)

    # ---- commits

    def commit(self, member: str, generation: int, positions: Mapping[str, int], epoch: str = "") -> bool:
        """Accepts a member's positions. True if any of them has to be written, or is being written.

        Raises StaleGeneration, and changes nothing, if the member is unknown, or if its positions are of another epoch.
        The same happens if it would move the position of a segment that it does not own, or that it came to own only
        after that generation.
        """
        if epoch != self.epoch:
            raise StaleGeneration(
                f"the positions of group {self.name} were set since {member} has read these messages: join again",
                generation=self.generation,
            )
        if member not in self.members:
            raise StaleGeneration(
                f"{member} is no member of group {self.name} (any more): join again", generation=self.generation
            )
        moved = {s: offset for s, offset in positions.items() if offset > self._highest_position(s)}
        foreign = sorted(s for s in moved if not self._may_commit(member, generation, s))
        if foreign:
            raise StaleGeneration(
                f"{', '.join(foreign)} is not assigned to {member} in generation {self.generation}: join again, "
                "and commit the others without it",
                generation=self.generation,
                segments=tuple(foreign),
            )
        self.pending.update(moved)
        return any(s in self.pending or s in self.in_flight for s in positions)

    def _may_commit(self, member: str, generation: int, segment: str) -> bool:
        handover = self.handovers.get(segment)
        ownership = handover.ownership if handover is not None else self.owners.get(segment)
        return ownership is not None and ownership.member == member and ownership.since <= generation <= self.generation

    def _highest_position(self, segment: str) -> int:
        durable = self.positions.get(segment, -1)
        return max(durable, self.in_flight.get(segment, -1), self.pending.get(segment, -1))

    def begin_flush(self) -> Mapping[str, int]:
        """The positions to write now. Answer with ``flushed`` or ``flush_failed`` before the next call."""
        assert not self.in_flight, "one write at a time"
        self.in_flight, self.pending = self.pending, {}
        after = ReadProgress(dict(self.reader.nodes), dict(self.positions))
        after.update({})
        for segment, offset in self.in_flight.items():
            after.advance(segment, offset)
        return {s: offset for s, offset in after.committed().items() if not is_removed(s, self.removed)}

    def flushed(self, now: Micros) -> None:
        """The positions of the last ``begin_flush`` are durable."""
        for segment, offset in self.in_flight.items():
            self.reader.advance(segment, offset)
        self.in_flight = {}
        for segment in [s for s in self.positions if is_removed(s, self.removed) and s not in self.pending]:
            del self.positions[segment]
        self.assign(now)

    def flush_failed(self) -> None:
        """The positions may not be durable, so they have to be written again."""
        self.pending = {**self.in_flight, **self.pending}
        self.in_flight = {}

    # ---- assignment

    def assign(self, now: Micros) -> None:
        """Assigns readable segments without an owner, revokes segments that are read, and balances the members."""
        before = dict(self.owners)
        readable = self.reader.readable()
        may_own = set(readable)
        self.owners = {s: t for s, t in self.owners.items() if s in may_own and t.member in self.members}
        self.handovers = {s: h for s, h in self.handovers.items() if s in may_own}
        load = dict.fromkeys(sorted(self.members), 0)
        for ownership in self.owners.values():
            load[ownership.member] += 1
        assigned: dict[str, str] = {}
        for segment in readable:
            busy = segment in self.handovers or segment in self.pending or segment in self.in_flight
            if segment not in self.owners and not busy and load:
                member = _least(load)
                assigned[segment] = member
                load[member] += 1
        revoked = self._to_even_out(load, assigned)
        if self.owners.keys() != before.keys() or assigned or revoked:
            self.generation += 1
        for segment, member in assigned.items():
            self.owners[segment] = Ownership(member, self.generation)
        for segment in revoked:
            ownership = self.owners.pop(segment)
            self.handovers[segment] = Handover(ownership, self.generation, now + HANDOVER_TIMEOUT)

    def _to_even_out(self, load: dict[str, int], assigned: Mapping[str, str]) -> list[str]:
        """The segments to revoke, so that finally no member has two more than another."""
        if not load:
            return []
        for _ in self.handovers:
            load[_least(load)] += 1
        old = [s for s in reversed(self.owners) if s not in assigned]
        revoked: list[str] = []
        while True:
            busiest = max(load, key=lambda m: load[m])
            idlest = _least(load)
            revocable = next((s for s in old if s not in revoked and self.owners[s].member == busiest), None)
            if load[busiest] - load[idlest] < 2 or revocable is None:
                return revoked
            revoked.append(revocable)
            load[busiest] -= 1
            load[idlest] += 1

    @property
    def awaited_commits(self) -> dict[str, int]:
        """The segments whose owner has returned every message, with the end that it has not committed."""
        return {
            segment: end
            for segment, ownership in self.owners.items()
            if (end := self.members[ownership.member].ended.get(segment)) is not None
            and end > self.positions.get(segment, 0)
        }

    @property
    def assignment(self) -> Mapping[str, str]:
        """The owner of each owned segment, ``{segment: member}``."""
        return {segment: ownership.member for segment, ownership in self.owners.items()}

    def positions_of(self, member: str) -> dict[str, int]:
        """The member's segments, each with its next offset."""
        return {s: self.positions.get(s, 0) for s, ownership in self.owners.items() if ownership.member == member}


def _least(load: Mapping[str, int]) -> str:
    return min(load, key=lambda m: load[m])
