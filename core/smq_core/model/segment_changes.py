"""Changes of a topic's open segments, by load, by age or by a person: they are sealed, and successors continue them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from smq_core.model.entities import Layout, Phase, Replica, Segment
from smq_core.model.keyspace import KeyRange, merge_ranges, split_evenly
from smq_core.model.segment_action import SegmentAction


@dataclass(frozen=True, slots=True)
class SegmentChange:
    """A change of these segments: of several for a merge, otherwise of one."""

    action: SegmentAction
    segments: tuple[str, ...]
    boundaries: tuple[int, ...] = ()
    """Where to split; without any, in the middle."""
    because: str = ""
    """Empty if a person requested it."""
    replacement: tuple[Replica, Replica] | None = None
    """Of a move by load: the replica that goes, and the one that comes. Without it all replicas go, if they can."""

    def validate(self, layout: Layout) -> None:
        """Raises ValueError, with a message for the user, if the change cannot be carried out."""
        segments = []
        for i, name in enumerate(self.segments):
            if name in self.segments[:i]:
                raise ValueError(f"{name} is named twice")
            if name not in layout:
                raise ValueError(f"the topic has no open segment {name!r}: see `smq segment list`")
            segments.append(layout.segment(name))
            if segments[-1].successors or segments[-1].phase is not Phase.OPEN:
                raise ValueError(f"{name} is {segments[-1].phase.value}: only open segments can change")
        if self.action is SegmentAction.MERGE and len(segments) < 2:
            raise ValueError("a merge needs two or more neighbouring segments")
        if self.action is not SegmentAction.MERGE and len(segments) != 1:
            raise ValueError(f"{self.action} takes exactly one segment")
        self.parts(segments)

    def parts(self, segments: Sequence[Segment]) -> list[KeyRange]:
        """The ranges of the successors. Raises ValueError, with a message for the user, if there are none."""
        if self.action is not SegmentAction.SPLIT:
            return [merge_ranges(s.range for s in segments)]
        whole = segments[0].range
        if len(whole) < 2:
            raise ValueError(f"{whole} is a single partition: it cannot be split")
        if not self.boundaries:
            return split_evenly(whole, 2)
        at = sorted(set(self.boundaries))
        if not all(whole.start < b < whole.stop for b in at):
            raise ValueError(f"a boundary must lie inside {whole}, between {whole.start + 1} and {whole.stop - 1}")
        return whole.split_at(at)
