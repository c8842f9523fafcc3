"""Which sealed segments may go: the oldest first, whole, and only when nothing before them is left in the DAG.

Two limits ask for it: ``retention.age``, counted from a segment's sealing, and ``retention.bytes`` of all sealed
segments together. Two things stand against it, whatever the limits say: a predecessor that is still there, and a
successor that has still to read the seal chunk (``needed``). A third one is the topic's choice: ``unread: Keep`` (the
default) also keeps what a living group has still to read. A group is living while it has members, and for
``retention.abandonedAfter`` after that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from smq_core.model import MIB, SECOND, Position, SealedSegment, TopicSpec


@dataclass(frozen=True, slots=True)
class GroupState:
    """A group as retention sees it. ``seen_at``: when it last had a member; None: it has one now, or nobody knows."""

    name: str
    positions: Position
    seen_at: int | None = None


@dataclass(frozen=True, slots=True)
class Removal:
    """One segment to remove. ``unread`` are the groups that lose it: ``{group: next offset}``."""

    segment: SealedSegment
    because: str
    unread: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verdict:
    """``removals`` in their order; ``held``: segments beyond a limit that stay for groups, ``{segment: groups}``."""

    removals: list[Removal]
    held: Mapping[str, list[str]]


def expired(
    spec: TopicSpec,
    sealed: Sequence[SealedSegment],
    groups: Iterable[GroupState],
    now: int,
    needed: Collection[str] = (),
) -> Verdict:
    """What to remove now. Times are microseconds, sizes bytes."""
    before = _before(sealed)
    following = [(group, _read(group.positions, sealed, before)) for group in groups]
    living = {group.name for group, _ in following if _is_living(spec, group, now)}
    kept = {s.name for s in sealed}
    total = sum(s.bytes for s in sealed)
    removals: list[Removal] = []
    held: dict[str, list[str]] = {}
    for segment in sorted(sealed, key=lambda s: s.number):
        because = _why(spec, segment, total, now)
        if because is None or segment.name in needed or any(name in kept for name in segment.predecessors):
            continue
        unread = {
            group.name: group.positions.get(segment.name, 0)
            for group, read in following
            if segment.end > 0 and segment.name not in read
        }
        holders = sorted(living & unread.keys()) if spec.retention_keeps_unread else []
        if holders:
            held[segment.name] = holders
            continue
        kept.discard(segment.name)
        total -= segment.bytes
        removals.append(Removal(segment, because, unread))
    return Verdict(removals, held)


def _why(spec: TopicSpec, segment: SealedSegment, total: int, now: int) -> str | None:
    age, limit, size = now - segment.sealed_at, spec.retention_age, spec.retention_bytes
    if limit is not None and age > limit:
        return f"older than {_time(limit)}"
    if size is not None and total > size:
        return f"{_size(total)} are sealed, {_size(size)} are kept"
    return None


def _is_living(spec: TopicSpec, group: GroupState, now: int) -> bool:
    after = spec.retention_abandoned_after
    return group.seen_at is None or after is None or now - group.seen_at <= after


def _before(sealed: Sequence[SealedSegment]) -> dict[str, list[str]]:
    """{segment: the sealed ones right before it}, of living successors too."""
    found: dict[str, list[str]] = {}
    for segment in sealed:
        for name in segment.successors:
            found.setdefault(name, []).append(segment.name)
    return found


def _read(positions: Position, sealed: Sequence[SealedSegment], before: Mapping[str, list[str]]) -> set[str]:
    """The segments that the group has read: to the end, or before something that it has a position for.

    A group gets into a segment only by committing the ends of all that came before.
    """
    read: set[str] = set()
    waiting = list(positions)
    while waiting:
        for name in before.get(waiting.pop(), ()):
            if name not in read:
                read.add(name)
                waiting.append(name)
    return read | {s.name for s in sealed if positions.get(s.name, -1) >= s.end}


def _time(micros: int) -> str:
    seconds = micros / SECOND
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.3g} s"


def _size(count: int) -> str:
    for unit, length in (("TiB", MIB * MIB), ("GiB", 1024 * MIB), ("MiB", MIB), ("KiB", 1024)):
        if count >= length:
            return f"{count / length:.4g} {unit}"
    return f"{count} B"
