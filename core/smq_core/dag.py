"""The segment DAG as a reader sees it: which segments may be read now, so that every key's order holds.

A segment may be read only when all its predecessors have been read to their ends. A predecessor that is neither in the
layout nor in the index has been removed by retention: it counts as read. So do all ancestors of a segment that has a
position: nobody gets into a segment before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from smq_core.layout import number_of
from smq_core.model import Layout, Position, SealedSegment
from smq_core.numbers import NONE, Numbers, contains


@dataclass(frozen=True, slots=True)
class Node:
    """A segment for a reader; ``end`` is None until it is sealed."""

    name: str
    predecessors: tuple[str, ...]
    end: int | None = None
    opened_at: int = 0


@dataclass(frozen=True, slots=True)
class Loss:
    """Offsets that were acked or delivered once and are gone. ``stop`` is ``start`` when nobody knows how many."""

    segment: str
    start: int
    stop: int


def nodes_of(sealed: Iterable[SealedSegment], layout: Layout | None) -> dict[str, Node]:
    """The whole DAG from the index and the layout, oldest first."""
    nodes = {s.name: Node(s.name, s.predecessors, s.end, s.opened_at) for s in sealed}
    for segment in layout.segments if layout is not None else ():
        nodes.setdefault(segment.name, Node(segment.name, segment.predecessors, None, segment.opened_at))
    return nodes


def index_is_behind(layout: Layout, sealed: Collection[SealedSegment], removed: Numbers = NONE) -> bool:
    """True when an index that was read is older than the layout: a segment that has left the layout is missing in it.

    What is missing would seem to be removed by retention, and to count as read: read the index again. ``removed`` are
    the numbers of the segments that retention did remove.
    """
    return bool(unexplained(layout, sealed, removed))


def layout_is_behind(layout: Layout, sealed: Collection[SealedSegment], removed: Numbers = NONE) -> bool:
    """True when a layout that was read is older than the index: that knows of segments, or of seals, of which this does
    not. What followed those segments would seem to follow nothing that is still there: read the layout again.
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


def unexplained(layout: Layout, sealed: Collection[SealedSegment], removed: Numbers = NONE) -> set[str]:
    """The predecessors that are neither there nor said to be removed."""
    nodes = nodes_of(sealed, layout)
    needed = {name for node in nodes.values() for name in node.predecessors}
    return {name for name in needed - nodes.keys() if not is_removed(name, removed)}


def is_removed(segment: str, removed: Numbers) -> bool:
    """Whether retention has removed the segment of that name."""
    try:
        return contains(removed, number_of(segment))
    except ValueError:
        return False


def latest_of(segments: Iterable[str]) -> int:
    """The highest number among these segments; -1 when none has one. What follows a segment has a higher number."""
    found = -1
    for segment in segments:
        with suppress(ValueError):
            found = max(found, number_of(segment))
    return found


@dataclass(slots=True)
class Reader:
    """How far one reader (or one group) has come in the DAG."""

    nodes: dict[str, Node] = field(default_factory=dict)
    positions: dict[str, int] = field(default_factory=dict)
    losses: list[Loss] = field(default_factory=list)
    _passed: set[str] = field(default_factory=set)
    _newest: int = -1

    def update(self, nodes: Mapping[str, Node]) -> None:
        """Newer knowledge of the DAG. Ends never change, so known ones are kept; a new one may show a loss."""
        for name, node in nodes.items():
            old = self.nodes.get(name)
            if old is None or old.end is None:
                self.nodes[name] = node
                if node.end is not None:
                    self.ended(name, node.end)
        self._passed = self._ancestors(self.positions)
        self._newest = latest_of(self.nodes)

    def ended(self, segment: str, end: int) -> None:
        """The segment is sealed at this end. A position beyond it was delivered and is lost: it counts as read."""
        node = self.nodes[segment]
        self.nodes[segment] = Node(node.name, node.predecessors, end, node.opened_at)
        position = self.positions.get(segment, 0)
        if position > end:
            self.losses.append(Loss(segment, end, position))
            self.positions[segment] = end

    def removed(self, segment: str, end: int | None) -> None:
        """Retention has removed the segment, which ended there (None: nobody knows any more): it counts as read.

        What was still to be read of it is lost to this reader, and what it was delivered beyond the end to everybody.
        """
        node = self.nodes.get(segment)
        read = segment in self._passed or (node is not None and self.is_read(segment))
        end = node.end if end is None and node is not None else end
        position = self.positions.get(segment, 0)
        if end is not None and position > end:
            self.losses.append(Loss(segment, end, position))
            self.positions[segment] = end
        elif not read and position != end:
            self.losses.append(Loss(segment, position, position if end is None else end))
        self.nodes.pop(segment, None)

    def advance(self, segment: str, next_offset: int) -> None:
        """Everything below ``next_offset`` was read. Positions never go back."""
        if segment not in self.positions:
            self._passed |= self._ancestors((segment,))
        self.positions[segment] = max(self.positions.get(segment, 0), next_offset)

    def is_read(self, segment: str) -> bool:
        """Read to its end, as all its predecessors are (an empty segment does not open the way), or removed."""
        waiting, seen = [segment], {segment}
        while waiting:
            name = waiting.pop()
            node = self.nodes.get(name)
            if node is None or name in self._passed:
                continue
            if node.end is None or self.positions.get(name, 0) < node.end:
                return False
            if name not in self.positions:  # an empty one that nobody was in: only its predecessors can tell
                waiting += [p for p in node.predecessors if p not in seen]
                seen.update(node.predecessors)
        return True

    def readable(self) -> list[str]:
        """The segments to read now: not read to the end, all predecessors read. None while what is known of the DAG is
        older than a position: what that position implies to be read would be read again."""
        if latest_of(self.positions) > self._newest:
            return []
        return [
            name
            for name, node in self.nodes.items()
            if not self.is_read(name) and all(self.is_read(p) for p in node.predecessors)
        ]

    def skip_to_latest(self) -> None:
        """Begin at the living segments: whatever is sealed counts as read."""
        for name, node in self.nodes.items():
            if node.end is not None:
                self.positions[name] = node.end

    def committed(self) -> Position:
        """The positions to commit: those that no position further on implies."""
        implied = {p for name in self.positions for p in self._predecessors(name)}
        return {name: offset for name, offset in self.positions.items() if name not in implied}

    def _predecessors(self, name: str) -> tuple[str, ...]:
        node = self.nodes.get(name)
        return node.predecessors if node is not None else ()

    def _ancestors(self, segments: Iterable[str]) -> set[str]:
        """All ancestors of these segments, without the segments themselves (unless they are ancestors of others)."""
        found: set[str] = set()
        waiting = list(segments)
        while waiting:
            for name in self._predecessors(waiting.pop()):
                if name not in found:
                    found.add(name)
                    waiting.append(name)
        return found
