"""Which sealed segments may go: the oldest first, whole, and only when nothing before them is left in the DAG."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from smq_core.model import Position, SealedSegment, TopicSpec


def expired(
    spec: TopicSpec, sealed: Sequence[SealedSegment], groups: Iterable[Position], now: int
) -> list[SealedSegment]:
    """The segments to remove now, in the order of removal. Times are microseconds, sizes bytes.

    A segment goes when it is older than ``retention_age`` (counted from its sealing) or when the sealed segments
    together exceed ``retention_bytes``; never before its predecessors, and never one that a group has begun to follow
    and has still to read.
    """
    kept = {s.name: s for s in sealed}
    positions = list(groups)
    total = sum(s.bytes for s in sealed)
    gone: list[SealedSegment] = []
    for segment in sorted(sealed, key=lambda s: s.number):
        too_old = spec.retention_age is not None and now - segment.sealed_at > spec.retention_age
        too_much = spec.retention_bytes is not None and total > spec.retention_bytes
        if not (too_old or too_much):
            continue
        if any(name in kept for name in segment.predecessors) or _unread(segment, kept, positions):
            continue
        del kept[segment.name]
        total -= segment.bytes
        gone.append(segment)
    return gone


def _unread(segment: SealedSegment, kept: Mapping[str, SealedSegment], groups: Sequence[Position]) -> bool:
    """True when a group has not read the segment to its end.

    A group that has no position for it has read it when it has one for something after it, which a group only gets by
    committing the ends of all that came before.
    """
    for positions in groups:
        if segment.name in positions:
            if positions[segment.name] < segment.end:
                return True
        elif not _passed(segment, kept, positions):
            return True
    return False


def _passed(segment: SealedSegment, kept: Mapping[str, SealedSegment], positions: Position) -> bool:
    after = list(segment.successors)
    while after:
        name = after.pop()
        if name in positions:
            return True
        if name in kept:
            after.extend(kept[name].successors)
    return False
