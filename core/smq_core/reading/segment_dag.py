"""The segment DAG for readers: which segments may be read now without breaking the order of a key.

A segment may be read only after all its predecessors have been read to their ends. A predecessor that is neither in the
layout nor in the index was removed by retention, so it counts as read. All ancestors of a segment that has a position
count as read too, because a reader enters a segment only after its ancestors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from smq_core.model.entities import Layout, Micros, Positions, SealedSegment, number_of
from smq_core.model.interval_set import EMPTY, IntervalSet, contains
from smq_core.model.loss import Loss


@dataclass(frozen=True, slots=True)
class SegmentNode:
    """A segment as a reader needs it. ``end`` is None until the segment is sealed."""

    name: str
    predecessors: tuple[str, ...]
    end: int | None = None
    opened_at: Micros = 0


def build_nodes(sealed: Iterable[SealedSegment], layout: Layout | None) -> dict[str, SegmentNode]:
    """Builds the whole DAG from the index and the layout, oldest segments first."""
    nodes = {s.name: SegmentNode(s.name, s.predecessors, s.end, s.opened_at) for s in sealed}
    for segment in layout.segments if layout is not None else ():
        nodes.setdefault(segment.name, SegmentNode(segment.name, segment.predecessors, None, segment.opened_at))
    return nodes


def index_is_stale(layout: Layout, sealed: Collection[SealedSegment], removed: IntervalSet = EMPTY) -> bool:
    """True if the index that was read is older than the layout, so that it lacks a segment that has left the layout.

    The missing segment would look removed by retention and count as read, so the index must be read again. ``removed``
    has the numbers of the segments that retention really removed.
    """
    return bool(missing_predecessors(layout, sealed, removed))


def layout_is_stale(layout: Layout, sealed: Collection[SealedSegment], removed: IntervalSet = EMPTY) -> bool:
    """True if the layout that was read is older than the index, which has segments or seals that the layout lacks.

    The successors of those segments would seem to have no predecessors left, so the layout must be read again.
    """
    if any(entry.number >= layout.next_number for entry in sealed) or any(
        stop > layout.next_number for _, stop in removed
    ):
        return True
    entries = {entry.name for entry in sealed}
    return any(
        is_removed(segment.name, removed) or (segment.name in entries and not segment.successors)
        for segment in layout.segments
    )


def missing_predecessors(layout: Layout, sealed: Collection[SealedSegment], removed: IntervalSet = EMPTY) -> set[str]:
    """The predecessors that are in neither document, although retention did not remove them."""
    nodes = build_nodes(sealed, layout)
    needed = {name for node in nodes.values() for name in node.predecessors}
    return {name for name in needed - nodes.keys() if not is_removed(name, removed)}


def ancestors(segments: Iterable[str], predecessors: Callable[[str], Iterable[str]]) -> set[str]:
    """All ancestors of these segments. A segment itself is included only if it is an ancestor of another one."""
    found: set[str] = set()
    waiting = list(segments)
    while waiting:
        for name in predecessors(waiting.pop()):
            if name not in found:
                found.add(name)
                waiting.append(name)
    return found


def is_removed(segment: str, removed: IntervalSet) -> bool:
    """Whether retention has removed this segment."""
    try:
        return contains(removed, number_of(segment))
    except ValueError:
        return False


def highest_number(segments: Iterable[str]) -> int:
    """The highest number of these segments, or -1. A successor's number is higher than its predecessors' numbers."""
    found = -1
    for segment in segments:
        with suppress(ValueError):
            found = max(found, number_of(segment))
    return found


@dataclass(slots=True)
class ReadProgress:
    """The progress of one reader (or one group) through the DAG."""

    nodes: dict[str, SegmentNode] = field(default_factory=dict)
    positions: dict[str, int] = field(default_factory=dict)
    losses: list[tuple[str, Loss]] = field(default_factory=list)
    """What this reader has lost, by segment: messages that were acked or delivered."""
    _implied_read: set[str] = field(default_factory=set)
    _newest_number: int = -1

    def update(self, nodes: Mapping[str, SegmentNode]) -> None:
        """Merges a newer DAG. Known ends are kept, because ends never change; a new end may reveal a loss."""
        for name, node in nodes.items():
            old = self.nodes.get(name)
            if old is None or old.end is None:
                self.nodes[name] = node
                if node.end is not None:
                    self.ended(name, node.end)
        self._implied_read = self._ancestors(self.positions)
        self._newest_number = highest_number(self.nodes)

    def ended(self, segment: str, end: int) -> None:
        """The segment is sealed at this end. Messages beyond it were delivered and are lost; they count as read."""
        node = self.nodes[segment]
        self.nodes[segment] = SegmentNode(node.name, node.predecessors, end, node.opened_at)
        position = self.positions.get(segment, 0)
        if position > end:
            self.losses.append((segment, Loss(end, position)))
            self.positions[segment] = end

    def removed(self, segment: str, end: int | None) -> None:
        """Retention has removed the segment, so it counts as read. ``end`` is None if its end is no longer known.

        Messages that this reader had not read are lost to it. Messages that it was delivered beyond the end are lost
        to every reader.
        """
        node = self.nodes.get(segment)
        read = segment in self._implied_read or (node is not None and self.is_read(segment))
        end = node.end if end is None and node is not None else end
        position = self.positions.get(segment, 0)
        if end is not None and position > end:
            self.losses.append((segment, Loss(end, position)))
            self.positions[segment] = end
        elif not read and position != end:
            self.losses.append((segment, Loss.from_offset(position, end)))
        self.nodes.pop(segment, None)

    def advance(self, segment: str, next_offset: int) -> None:
        """All messages below ``next_offset`` were read. Positions never decrease."""
        if segment not in self.positions:
            self._implied_read |= self._ancestors((segment,))
        self.positions[segment] = max(self.positions.get(segment, 0), next_offset)

    def seek(self, positions: Mapping[str, int]) -> None:
        """Goes on, or back, to these positions, each of a known segment.

        Segments before a named one count as read. Those after it are read again from their beginnings, when it was read
        to its end. All others stay where they are.
        """
        for name in self._implied_read:
            end = self.nodes[name].end if name in self.nodes else None
            if end is not None:  # explicit, because the positions that imply it may go
                self.positions[name] = end
        later: set[str] = set()
        for name in sorted(self.nodes, key=lambda it: highest_number((it,))):
            if name not in positions and any(p in positions or p in later for p in self.nodes[name].predecessors):
                later.add(name)
        self.positions = {name: offset for name, offset in self.positions.items() if name not in later}
        self.positions.update(positions)
        self._implied_read = self._ancestors(self.positions)

    def is_read(self, segment: str) -> bool:
        """True if the segment and all its predecessors are read to their ends, or it was removed.

        The predecessors count too, because an empty segment is at its end from the start.
        """
        waiting, seen = [segment], {segment}
        while waiting:
            name = waiting.pop()
            node = self.nodes.get(name)
            if node is None or name in self._implied_read:
                continue
            if node.end is None or self.positions.get(name, 0) < node.end:
                return False
            if name not in self.positions:  # empty and never entered, so its predecessors decide
                waiting += [p for p in node.predecessors if p not in seen]
                seen.update(node.predecessors)
        return True

    def readable(self) -> list[str]:
        """The segments to read now: those not yet read to the end whose predecessors are all read.

        The list is empty while the known DAG is older than a position, because segments that the position implies to be
        read would be read again.
        """
        if highest_number(self.positions) > self._newest_number:
            return []
        return [
            name
            for name, node in self.nodes.items()
            if not self.is_read(name) and all(self.is_read(p) for p in node.predecessors)
        ]

    def skip_to_latest(self) -> None:
        """Starts at the segments of the layout. Every sealed segment counts as read."""
        for name, node in self.nodes.items():
            if node.end is not None:
                self.positions[name] = node.end

    def committed(self) -> Positions:
        """The positions to commit, without those that a successor's position implies."""
        implied = {p for name in self.positions for p in self._predecessors(name)}
        return {name: offset for name, offset in self.positions.items() if name not in implied}

    def _predecessors(self, name: str) -> tuple[str, ...]:
        node = self.nodes.get(name)
        return node.predecessors if node is not None else ()

    def _ancestors(self, segments: Iterable[str]) -> set[str]:
        return ancestors(segments, self._predecessors)
