"""The lag of a consumer group: how many messages it has not committed, and how old the oldest of them is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from smq_core.model.entities import Micros, number_of
from smq_core.reading.segment_dag import SegmentNode

# About when the message of a segment at an offset was appended; None if there is none yet, or it is not known.
AppendTime = Callable[[str, int], Micros | None]


@dataclass(frozen=True, slots=True)
class SegmentLag:
    """The messages ``position .. end - 1`` of a segment are not committed."""

    segment: str
    position: int
    end: int

    @property
    def messages(self) -> int:
        """How many messages these are; 0 for a position beyond the known end."""
        return max(0, self.end - self.position)


@dataclass(frozen=True, slots=True)
class GroupLag:
    """``messages`` that the group has not committed, and the ``age`` of the oldest one in microseconds, 0 if none."""

    messages: int
    age: Micros


@dataclass(frozen=True, slots=True)
class SegmentGraph:
    """The segment DAG, and its segments without successors, from which it is walked back."""

    nodes: Mapping[str, SegmentNode]
    newest: tuple[str, ...]

    @classmethod
    def of(cls, nodes: Mapping[str, SegmentNode]) -> SegmentGraph:
        """One pass over all segments."""
        followed = {name for node in nodes.values() for name in node.predecessors}
        return cls(nodes, tuple(name for name in nodes if name not in followed))


def segment_lags(graph: SegmentGraph, positions: Mapping[str, int], watermarks: Mapping[str, int]) -> list[SegmentLag]:
    """What the group has not read to its end, oldest segments first.

    ``watermarks`` has the readable ends of living segments. Ancestors of a segment with a position count as read,
    because a group enters a segment only after it committed the ends of all predecessors. Only segments that are newer
    than the oldest unread one are visited, so a group that keeps up costs little, however long the history is.
    """
    nodes = graph.nodes
    waiting = [(-number_of(name), name) for name in graph.newest]
    heapify(waiting)
    unread = set(graph.newest)
    """Segments that wait, and that no position says to be read so far."""
    read: set[str] = set()
    lags = []
    while unread:  # predecessors come after all their successors, because their numbers are lower
        name = heappop(waiting)[1]
        unread.discard(name)
        node, position = nodes[name], positions.get(name, 0)
        if name not in read and (node.end is None or position < node.end):
            lags.append(SegmentLag(name, position, node.end if node.end is not None else watermarks.get(name, 0)))
        for before in node.predecessors:
            if before not in nodes:
                continue  # retention removed it
            if before not in read and before not in unread:
                heappush(waiting, (-number_of(before), before))
                unread.add(before)
            if name in read or name in positions:
                unread.discard(before)
                read.add(before)
    return lags[::-1]


def total_lag(lags: Iterable[SegmentLag], appended_at: AppendTime, now: Micros) -> GroupLag:
    """The lag of the group over all segments."""
    messages = age = 0
    for lag in lags:
        if lag.messages:
            messages += lag.messages
            appended = appended_at(lag.segment, lag.position)
            age = max(age, now - appended if appended is not None else 0)
    return GroupLag(messages, age)
