"""A reader of a part of a topic: of some segments only."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from smq_core.errors import InvalidRequest
from smq_core.model.entities import number_of, range_of
from smq_core.reading.segment_dag import SegmentNode

# How many segments an error names at most.
MAX_NAMED = 10


@dataclass(frozen=True, slots=True)
class SegmentChoice:
    """``segments`` by name, and those whose range has any of the ``partitions`` (slots of the ring).

    None stands for all. A predecessor that is not chosen counts as read.
    """

    segments: frozenset[str] | None = None
    partitions: frozenset[int] | None = None

    @classmethod
    def of(
        cls, segments: Collection[str] | None, partitions: Collection[int] | None, group: str | None, count: int
    ) -> SegmentChoice:
        """For a topic with ``count`` partitions. Raises InvalidRequest."""
        if group is not None and (segments is not None or partitions is not None):
            raise InvalidRequest(
                "a group reads all segments, and the leader assigns them: leave out either the group, or segments and "
                "partitions"
            )
        if isinstance(segments, str):
            raise InvalidRequest(f"segments must be names in a list, such as [{segments!r}]")
        for partition in partitions or ():
            if not 0 <= partition < count:
                raise InvalidRequest(f"there is no partition {partition}: the topic has those from 0 to {count - 1}")
        return cls(
            frozenset(segments) if segments is not None else None,
            frozenset(partitions) if partitions is not None else None,
        )

    def check_known(self, topic: str, known: Iterable[str]) -> None:
        """Raises InvalidRequest if the topic has no segment of a chosen name."""
        names = list(known)
        missing = sorted((self.segments or frozenset()) - set(names))
        if missing:
            newest = sorted(names, key=number_of)[-MAX_NAMED:]
            raise InvalidRequest(f"{topic} has no segment {missing[0]}; it has {', '.join(newest)}")

    def has(self, segment: str) -> bool:
        """Whether the segment is read."""
        if self.segments is not None and segment not in self.segments:
            return False
        if self.partitions is None:
            return True
        range_ = range_of(segment)
        return any(range_.start <= partition < range_.stop for partition in self.partitions)

    def among(self, nodes: dict[str, SegmentNode]) -> dict[str, SegmentNode]:
        """The part of the DAG that is read."""
        if self.segments is None and self.partitions is None:
            return nodes
        return {name: node for name, node in nodes.items() if self.has(name)}


ALL_SEGMENTS = SegmentChoice()


def check_possible(segments: Collection[str], possible: Collection[str], problem: str) -> None:
    """Raises InvalidRequest for the first segment that is not possible, with the ``problem`` and those that are."""
    wrong = [segment for segment in segments if segment not in possible]
    if wrong:
        raise InvalidRequest(f"{wrong[0]} {problem}; possible are: {', '.join(sorted(possible)) or 'none'}")
