"""How far a group is behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from smq import SegmentInfo


def lag(segments: Sequence[SegmentInfo], positions: Mapping[str, int], ends: Mapping[str, int]) -> int:
    """Messages that can be read and are not committed.

    ``segments`` is the whole DAG, ``ends`` the watermarks of the living ones. A sealed segment that has left the
    positions was read: a group keeps only what it needs to know which successors it may open.
    """
    children: dict[str, list[str]] = {}
    for segment in segments:
        for name in segment.predecessors:
            children.setdefault(name, []).append(segment.name)
    passed: set[str] = set()
    for segment in sorted(segments, key=lambda s: s.number, reverse=True):
        if any(child in positions or child in passed for child in children.get(segment.name, ())):
            passed.add(segment.name)
    behind = 0
    for segment in segments:
        if segment.name in passed:
            continue
        end = segment.end if segment.end is not None else ends.get(segment.name, 0)
        behind += max(0, end - positions.get(segment.name, 0))
    return behind
