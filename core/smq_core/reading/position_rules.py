"""Which positions a reader of a topic can have, and positions that are derived from others."""

from __future__ import annotations

from collections.abc import Mapping

from smq_core.errors import InvalidRequest
from smq_core.model.entities import Positions
from smq_core.model.interval_set import EMPTY, IntervalSet
from smq_core.reading.segment_dag import ReadProgress, SegmentNode, ancestors, is_removed

# How many segments an error names at most.
MAX_NAMED = 10


def check_positions(
    topic: str,
    nodes: Mapping[str, SegmentNode],
    positions: Positions,
    watermarks: Mapping[str, int],
    removed: IntervalSet = EMPTY,
) -> None:
    """Raises InvalidRequest if no reader of the topic can have these positions. The message says which are possible.

    ``watermarks`` has the readable ends of living segments, as far as they are known.
    """
    problems = impossible_positions(topic, nodes, positions, watermarks, removed)
    known = {name: offset for name, offset in positions.items() if name in nodes}
    for name in known:
        for before in sorted(ancestors((name,), lambda it: nodes[it].predecessors if it in nodes else ())):
            end = nodes[before].end if before in nodes else None
            if before in known and (end is None or known[before] < end):
                upto = f"its end, {end}" if end is not None else "its end"
                problems.append(
                    f"a reader enters {name} only after it has read {before}: leave {name} out, or set {before} to "
                    f"{upto}"
                )
    if problems:
        raise InvalidRequest("; ".join(problems))


def impossible_positions(
    topic: str,
    nodes: Mapping[str, SegmentNode],
    positions: Positions,
    watermarks: Mapping[str, int],
    removed: IntervalSet = EMPTY,
) -> list[str]:
    """What is wrong with each position by itself, and what would be right. As :func:`check_positions` otherwise."""
    return [
        problem
        for name, offset in positions.items()
        if (problem := _problem(topic, name, offset, nodes, watermarks, removed))
    ]


def _problem(
    topic: str,
    name: str,
    offset: int,
    nodes: Mapping[str, SegmentNode],
    watermarks: Mapping[str, int],
    removed: IntervalSet,
) -> str:
    """What is wrong with one position, and what would be right; empty if nothing is."""
    node = nodes.get(name)
    if node is None and is_removed(name, removed):
        return f"retention has removed {name}: leave it out, and what follows it is read from the beginning"
    if node is None:
        known = sorted(nodes, key=lambda it: nodes[it].end is not None)  # the open ones first
        more = f" and {len(known) - MAX_NAMED} more" if len(known) > MAX_NAMED else ""
        return f"{topic} has no segment {name}; it has {', '.join(known[:MAX_NAMED])}{more}"
    end = node.end if node.end is not None else watermarks.get(name)
    if offset < 0 or (end is not None and offset > end):
        ends = "ends at" if node.end is not None else "has messages up to"
        return f"{name} has no offset {offset}: it {ends} {end}, so 0 to {end} are possible"
    return ""


def shifted(
    nodes: Mapping[str, SegmentNode], positions: Positions, watermarks: Mapping[str, int], by: int
) -> dict[str, int]:
    """The positions of a reader that goes ``by`` messages on, or back, in each segment that it reads now.

    It goes at most to the beginning or the end of that segment, as far as the segment can be read.
    """
    progress = ReadProgress(positions=dict(positions))
    progress.update(nodes)
    moved = dict(progress.positions)
    for name in progress.readable():
        end = nodes[name].end
        readable = end if end is not None else max(watermarks.get(name, 0), progress.positions.get(name, 0))
        moved[name] = min(max(0, progress.positions.get(name, 0) + by), readable)
    after = ReadProgress(positions=moved)
    after.update(nodes)
    return dict(after.committed())
