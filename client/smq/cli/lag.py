"""The lag of a consumer group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from smq import SegmentInfo


def lag(segments: Sequence[SegmentInfo], positions: Mapping[str, int], ends: Mapping[str, int]) -> int:
    """Returns how many readable messages the group has not committed.

    ``segments`` is the whole DAG, ``ends`` has the watermarks of the living ones. A sealed segment without a position
    counts as read if a successor has a position, because a group drops positions that it no longer needs.
    """
    successors: dict[str, list[str]] = {}
    for segment in segments:
        for name in segment.predecessors:
            successors.setdefault(name, []).append(segment.name)
    fully_read: set[str] = set()
    for segment in sorted(segments, key=lambda s: s.number, reverse=True):
        if any(child in positions or child in fully_read for child in successors.get(segment.name, ())):
            fully_read.add(segment.name)
    lag_messages = 0
    for segment in segments:
        if segment.name in fully_read:
            continue
        end = segment.end if segment.end is not None else ends.get(segment.name, 0)
        lag_messages += max(0, end - positions.get(segment.name, 0))
    return lag_messages
