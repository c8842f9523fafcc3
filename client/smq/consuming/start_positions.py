"""The positions at which a consumer starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

from smq.consuming.consumer_options import Start
from smq.reading.broker_reports import BrokerReports
from smq.transport.topic_view import TopicView
from smq_core.errors import Unavailable
from smq_core.model.entities import SealedSegment, Segment
from smq_core.model.loss import Loss
from smq_core.reading.segment_dag import ReadProgress, highest_number
from smq_storage.catalog.paths import first_offset
from smq_storage.chunks.chain import ChunkChain

MAX_CLOCK_SKEW = timedelta(minutes=2)


def seek_to_start(
    view: TopicView, reader: ReadProgress, start: Start, sealed: Iterable[SealedSegment], ends: Mapping[str, int]
) -> int:
    """Sets the reader's positions. Returns the time (microseconds) before which messages are left out, or 0.

    The reader must have the DAG already. ``ends`` has the known end offsets of removed segments.

    Raises Unavailable if the watermarks of living segments cannot be read.
    """
    if isinstance(start, Mapping):
        # A position in a segment that never existed must not mark other segments as read.
        next_number = view.snapshot.layout.next_number
        reader.positions.update(
            {name: offset for name, offset in start.items() if highest_number((name,)) < next_number}
        )
        reader.update({})
        for name, position in start.items():
            node = reader.nodes.get(name)
            if node is None and name in reader.positions:
                reader.removed(name, ends.get(name))
            elif node is None:
                reader.losses.append((name, Loss.from_offset(position, None)))
            elif node.end is not None and position > node.end:
                reader.ended(name, node.end)
    elif start == "latest":
        reader.skip_to_latest()
        living = {s.name: s for s in view.snapshot.layout.segments}
        for name, end in watermarks(view, [living[name] for name in reader.readable()]).items():
            reader.advance(name, end)
    elif isinstance(start, datetime):
        start_time = start if start.tzinfo is not None else start.replace(tzinfo=UTC)
        since = round(start_time.timestamp() * 1_000_000)
        _skip_older(view, reader, start_time, since, sealed)
        return since
    return 0


def watermarks(view: TopicView, segments: Iterable[Segment]) -> dict[str, int]:
    """The segments' present watermarks, from any of their replicas or else from the filer. Raises Unavailable."""
    segments = list(segments)
    topic = view.snapshot.topic
    with BrokerReports(view.dialer) as reports:
        found = {name: it.watermark for name, it in reports.reaches(topic.name, topic.uid, segments).items()}
    for segment in segments:
        if segment.name not in found:
            end = found[segment.name] = _chain(view, segment.name).end()
            if end == 0 and not segment.predecessors:
                raise Unavailable(f"no replica of {segment.name} reports its watermark; try again")
    return found


def _skip_older(
    view: TopicView, reader: ReadProgress, start_time: datetime, since: int, sealed: Iterable[SealedSegment]
) -> None:
    """Marks segments and chunks as read if all of their messages were written before ``start_time``."""
    ends = {s.name: s for s in sealed}
    for name, found in ends.items():
        if found.sealed_at < since:
            reader.advance(name, found.end)
    for name in reader.readable():
        if name in ends and ends[name].file_list:
            continue  # the fetcher has the file list, and skips what is older without a listing
        skip_to = 0
        for listed in _chain(view, name).files():
            first = first_offset(listed.path)
            if first is not None and listed.modified + MAX_CLOCK_SKEW < start_time:
                # All of this chunk was appended before. Its end is not known from its name, so skip to its beginning.
                skip_to = first
        if skip_to:
            reader.advance(name, skip_to)


def _chain(view: TopicView, segment: str) -> ChunkChain:
    snapshot = view.snapshot
    return ChunkChain(view.store.open(), snapshot.topic.name, snapshot.topic.uid, segment)
