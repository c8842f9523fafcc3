"""Divides a topic into micro-batches for a reader that remembers only positions, such as a Spark query.

A micro-batch goes from one set of positions to the next. What it reads is divided into groups. Each group is read by
one task, in its order, and all groups at the same time. So that each key's messages stay in their order,

* a segment is entered only when its predecessors are read to their final ends, and
* a segment shares a micro-batch with an ancestor only within one group.

The second rule would make a long history one group, and without groups of several segments it would take a micro-batch
for each generation. So a segment joins its predecessors' group while that has fewer than ``join_rows``, and waits for
the next micro-batch otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from smq_core.model.entities import Positions, RemovedSegment, number_of, range_of
from smq_core.model.keyspace import KeyRange
from smq_core.reading.segment_dag import ReadProgress, SegmentNode, highest_number
from smq_core.reading.segment_ranges import SegmentRange


@dataclass(slots=True)
class _Groups:
    """Disjoint sets of segments with their numbers of rows."""

    parents: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)

    def group(self, segment: str) -> str:
        """The segment that stands for the group."""
        while self.parents.setdefault(segment, segment) != segment:
            segment = self.parents[segment]
        return segment

    def join(self, segment: str, others: Iterable[str], rows: int = 0) -> None:
        mine = self.group(segment)
        for other in others:
            group = self.group(other)
            if group != mine:
                self.parents[group] = mine
                self.sizes[mine] = self.sizes.get(mine, 0) + self.sizes.pop(group, 0)
        self.sizes[mine] = self.sizes.get(mine, 0) + rows

    def rows(self, segments: Iterable[str]) -> int:
        """The rows of all groups with these segments."""
        return sum(self.sizes.get(group, 0) for group in {self.group(segment) for segment in segments})


def next_positions(
    nodes: Mapping[str, SegmentNode],
    start: Positions,
    ends: Mapping[str, int],
    max_rows: int | None,
    join_rows: int,
) -> Positions:
    """The positions at which the micro-batch that begins at ``start`` ends; ``start`` if there is nothing to read.

    ``nodes`` is the segment DAG, in which only final ends are ends. ``ends`` says how far each segment can be read now.
    ``max_rows`` is shared by the segments in proportion to what each has, at least one row for each of them; None means
    no limit.
    """
    progress = ReadProgress(positions=dict(start))
    progress.update(nodes)
    left = max_rows
    groups = _Groups()
    entered: set[str] = set()
    while True:
        available = {
            name: ends.get(name, 0) - progress.positions.get(name, 0)
            for name in progress.readable()
            if name not in entered and groups.rows(_nearest(nodes, groups, name)) < join_rows
        }
        available = {name: rows for name, rows in available.items() if rows > 0}
        if not available or (left is not None and left <= 0):
            return progress.committed()
        taken = available if left is None else _share(available, left)
        for name, rows in taken.items():
            entered.add(name)
            groups.join(name, _nearest(nodes, groups, name), rows)
            progress.advance(name, progress.positions.get(name, 0) + rows)
            left = None if left is None else left - rows


def micro_batch_groups(
    nodes: Mapping[str, SegmentNode], start: Positions, end: Positions
) -> list[tuple[SegmentRange, ...]]:
    """What is read between two positions, in groups. The groups may be read at the same time, each one in its order.

    They depend on the positions, not on what else the DAG has by now, so that a repeated micro-batch has the same rows.
    Raises KeyError with the name of a segment that is not in the DAG and would have to be read.
    """
    begin, stop = _offsets(nodes, start), _offsets(nodes, end)
    ranges = {
        name: SegmentRange(name, begin.get(name, 0), offset)
        for name, offset in stop.items()
        if begin.get(name, 0) < offset
    }
    for name in ranges:
        if name not in nodes:
            raise KeyError(name)
    groups = _Groups()
    for name in sorted(ranges, key=lambda it: highest_number((it,))):
        groups.join(name, _nearest(nodes, groups, name), ranges[name].stop - ranges[name].start)
    found: dict[str, list[SegmentRange]] = {}
    for name in sorted(ranges, key=lambda it: highest_number((it,))):  # a successor's number is the higher one
        found.setdefault(groups.group(name), []).append(ranges[name])
    return [tuple(group) for group in found.values()]


def unread_removed_segments(positions: Positions, removed: Iterable[RemovedSegment]) -> list[RemovedSegment]:
    """The segments with messages that retention removed before a reader at these positions had read them.

    A reader enters a segment only after all older ones of the same partitions. So a removed one was read if there is a
    position in a newer one that has a partition in common with it. The positions must have been complete when the
    reader started: one for the oldest segment of each partition.
    """
    places = [(number_of(name), range_of(name)) for name in positions]
    return [
        it
        for it in removed
        if positions.get(it.name, 0) < it.end
        and not any(number > it.number and _overlap(range_, range_of(it.name)) for number, range_ in places)
    ]


def _overlap(a: KeyRange, b: KeyRange) -> bool:
    return a.start < b.stop and b.start < a.stop


def _nearest(nodes: Mapping[str, SegmentNode], groups: _Groups, name: str) -> set[str]:
    """The nearest ancestors that have a group already. Farther ones are in the same groups."""
    found: set[str] = set()
    node = nodes.get(name)
    waiting = list(node.predecessors) if node is not None else []
    seen = set(waiting)
    while waiting:
        predecessor = waiting.pop()
        if predecessor in groups.parents:
            found.add(predecessor)
            continue
        before = nodes.get(predecessor)
        new = [it for it in (before.predecessors if before is not None else ()) if it not in seen]
        seen.update(new)
        waiting += new
    return found


def _share(available: Mapping[str, int], rows: int) -> dict[str, int]:
    """At most about ``rows`` rows, from each segment in proportion to what it has, and one row at least."""
    total = sum(available.values())
    if total <= rows:
        return dict(available)
    return {name: max(1, count * rows // total) for name, count in available.items()}


def _offsets(nodes: Mapping[str, SegmentNode], positions: Positions) -> dict[str, int]:
    """The next offset of each segment that the positions name or imply: ancestors were read to their ends."""
    found = dict(positions)
    waiting = list(positions)
    while waiting:
        node = nodes.get(waiting.pop())
        for name in node.predecessors if node is not None else ():
            if name not in found and name in nodes:
                found[name] = nodes[name].end or 0
                waiting.append(name)
            elif name in positions and name in nodes:
                found[name] = max(found[name], nodes[name].end or 0)
    return found
