"""Positions at which a program starts again. One that no reader can have had is a mistake of the program, and no loss.

Losses are kept apart: a segment that retention has removed, and what was read beyond the end of a segment that has lost
messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from smq.consuming.segment_choice import SegmentChoice
from smq.reading.broker_reports import BrokerReports
from smq.transport.topic_view import TopicView
from smq_core.errors import InvalidRequest
from smq_core.model.entities import Positions, SealedSegment, Segment
from smq_core.model.interval_set import IntervalSet
from smq_core.reading.position_rules import impossible_positions
from smq_core.reading.segment_dag import build_nodes, is_removed


def are_doubtful(
    view: TopicView, positions: Positions, sealed: Mapping[str, SealedSegment], removed: IntervalSet
) -> bool:
    """Whether any of the positions seems to be one that no reader can have had.

    This client may have an old layout, so only the topic's files decide, see :meth:`PositionSearch.check_saved`.
    """
    layout = view.snapshot.layout
    checked = without_losses(positions, sealed.values(), removed)
    # The primary knows a message to be durable before any reader gets it. Followers may learn it later.
    primaries = [
        replace(segment, replicas=segment.replicas[:1])
        for segment in layout.segments
        if checked.get(segment.name) and segment.name not in sealed and not segment.successors
    ]
    nodes = build_nodes(sealed.values(), layout)
    return bool(impossible_positions(view.name, nodes, checked, _watermarks(view, primaries), removed))


def without_losses(positions: Positions, sealed: Iterable[SealedSegment], removed: IntervalSet) -> dict[str, int]:
    """The positions but for those that may be wrong because messages were lost."""
    lossy = {it.name for it in sealed if it.lost is not None}
    return {n: offset for n, offset in positions.items() if n not in lossy and not is_removed(n, removed)}


def check_chosen(positions: Positions, choice: SegmentChoice, known: Iterable[str]) -> None:
    """Raises InvalidRequest for a position in a segment that exists, and is not among those to be read."""
    names = list(known)
    if wrong := [name for name in positions if name in names and not choice.has(name)]:
        possible = ", ".join(sorted(filter(choice.has, names))) or "none"
        raise InvalidRequest(f"{wrong[0]} is not among those that this consumer reads; possible are: {possible}")


def _watermarks(view: TopicView, segments: list[Segment]) -> dict[str, int]:
    if not segments:
        return {}
    with BrokerReports(view.dialer) as reports:
        reaches = reports.reaches(view.name, view.snapshot.topic.uid, segments)
    return {name: reach.watermark for name, reach in reaches.items()}
