"""Which sealed segments retention removes: whole segments, the oldest first, and never before their predecessors.

A segment expires by ``retention.age``, counted from its seal, or by ``retention.bytes`` of all sealed segments. An
expired segment stays while one of its predecessors stays, or while a successor has yet to read its seal chunk
(``needed``). The seal chunk of a segment that ended empty may refer to those of its predecessors
(``SealOutcome.uninherited``), so these stay with it. With ``unread: Keep`` (the default) an expired segment also stays
while an active group has not read it. A group is active while it has members, and for ``retention.abandonedAfter``
after that. Groups of Kafka clients are counted after that (``kafka_retention.py``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from smq_core.model.entities import Micros, Positions, SealedSegment, TopicSpec
from smq_core.model.units import duration_text, format_size


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """The progress of a group. ``last_active_at`` is None if it has members now, or if the time is unknown."""

    name: str
    positions: Positions
    last_active_at: Micros | None = None


@dataclass(frozen=True, slots=True)
class Removal:
    """One segment to remove. ``unread`` has the groups that lose messages: ``{group: next offset}``.

    ``kafka_unread`` has those of Kafka clients, ``{group: messages}``, as far as that was found out.
    """

    segment: SealedSegment
    because: str
    unread: Mapping[str, int] = field(default_factory=dict)
    kafka_unread: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """The removals in order, and the expired segments that stay for groups: ``{segment: groups}``."""

    removals: list[Removal]
    retained: Mapping[str, list[str]]


def plan_retention(
    spec: TopicSpec,
    sealed: Sequence[SealedSegment],
    groups: Iterable[GroupProgress],
    now: Micros,
    needed: Collection[str] = (),
) -> RetentionPlan:
    """Decides what to remove now."""
    before = _sealed_predecessors(sealed)
    group_progress = [(group, _segments_read(group.positions, sealed, before)) for group in groups]
    living = {group.name for group, _ in group_progress if is_active(spec, group.last_active_at, now)}
    kept = {s.name for s in sealed}
    needed = _with_those_before_empty_ones(needed, sealed)
    total = sum(s.bytes for s in sealed)
    removals: list[Removal] = []
    retained: dict[str, list[str]] = {}
    for segment in sorted(sealed, key=lambda s: s.number):
        because = _expiry_reason(spec, segment, total, now)
        if because is None or segment.name in needed or any(name in kept for name in segment.predecessors):
            continue
        unread = {
            group.name: group.positions.get(segment.name, 0)
            for group, read in group_progress
            if segment.end > 0 and segment.name not in read
        }
        holders = sorted(living & unread.keys()) if spec.retention_keeps_unread else []
        if holders:
            retained[segment.name] = holders
            continue
        kept.discard(segment.name)
        total -= segment.bytes
        removals.append(Removal(segment, because, unread))
    return RetentionPlan(removals, retained)


def _with_those_before_empty_ones(needed: Collection[str], sealed: Sequence[SealedSegment]) -> set[str]:
    """Adds the predecessors of segments that ended empty, and so on."""
    empty = {segment.name: segment.predecessors for segment in sealed if segment.end == 0}
    found = set(needed)
    waiting = list(needed)
    while waiting:
        further = [name for name in empty.get(waiting.pop(), ()) if name not in found]
        found.update(further)
        waiting += further
    return found


def _expiry_reason(spec: TopicSpec, segment: SealedSegment, total: int, now: Micros) -> str | None:
    age, limit, size = now - segment.sealed_at, spec.retention_age, spec.retention_bytes
    if limit is not None and age > limit:
        return f"older than {duration_text(limit)}"
    if size is not None and total > size:
        return f"{format_size(total)} are sealed, {format_size(size)} are kept"
    return None


def is_active(spec: TopicSpec, last_active_at: Micros | None, now: Micros) -> bool:
    """Whether retention still waits for a group. ``last_active_at`` is as in :class:`GroupProgress`."""
    after = spec.retention_abandoned_after
    return last_active_at is None or after is None or now - last_active_at <= after


def _sealed_predecessors(sealed: Sequence[SealedSegment]) -> dict[str, list[str]]:
    """The sealed predecessors of each segment, also of segments that are still open."""
    found: dict[str, list[str]] = {}
    for segment in sealed:
        for name in segment.successors:
            found.setdefault(name, []).append(segment.name)
    return found


def _segments_read(positions: Positions, sealed: Sequence[SealedSegment], before: Mapping[str, list[str]]) -> set[str]:
    """The segments that the group has read: to the end, or as ancestors of a segment for which it has a position.

    A group enters a segment only after it committed the ends of all predecessors.
    """
    read: set[str] = set()
    waiting = list(positions)
    while waiting:
        for name in before.get(waiting.pop(), ()):
            if name not in read:
                read.add(name)
                waiting.append(name)
    return read | {s.name for s in sealed if positions.get(s.name, -1) >= s.end}
