"""The lag of a consumer group: how many messages it has not committed, and how old the oldest of them is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from smq_core.model.entities import Micros
from smq_core.reading.segment_dag import SegmentNode, ancestors

AppendTime = Callable[[str, int], Micros | None]
"""About when the message of a segment at an offset was appended; None if there is none yet, or it is not known."""


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


def segment_lags(
    nodes: Mapping[str, SegmentNode], positions: Mapping[str, int], watermarks: Mapping[str, int]
) -> list[SegmentLag]:
    """What the group has not read to its end, oldest segments first.

    ``watermarks`` has the readable ends of living segments. Ancestors of a segment with a position count as read,
    because a group enters a segment only after it committed the ends of all predecessors.
    """
    read = ancestors(positions, lambda name: nodes[name].predecessors if name in nodes else ())
    lags = []
    for name, node in nodes.items():
        position = positions.get(name, 0)
        if name in read or (node.end is not None and position >= node.end):
            continue
        lags.append(SegmentLag(name, position, node.end if node.end is not None else watermarks.get(name, 0)))
    return lags


def total_lag(lags: Iterable[SegmentLag], appended_at: AppendTime, now: Micros) -> GroupLag:
    """The lag of the group over all segments."""
    messages = age = 0
    for lag in lags:
        if lag.messages:
            messages += lag.messages
            appended = appended_at(lag.segment, lag.position)
            age = max(age, now - appended if appended is not None else 0)
    return GroupLag(messages, age)
