"""Which offsets of which segments a batch read covers."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from pyspark_smq.errors import InvalidOption, nearest
from pyspark_smq.options import Start
from smq_core.errors import DataLost
from smq_core.model.entities import SealedSegment
from smq_core.reading.segment_dag import ancestors, highest_number, is_removed
from smq_storage.tables.pinned_reads import TopicFiles

log = logging.getLogger(__name__)


def ranges_to_read(
    files: TopicFiles,
    ends: Mapping[str, int],
    start: Start = "earliest",
    end: Start = "latest",
    segments: Collection[str] | None = None,
    fail_on_data_loss: bool = True,
) -> dict[str, tuple[int, int]]:
    """The offsets ``(start, stop)`` of each segment that are read, oldest segments first.

    ``ends`` has the ends of living segments. ``start`` and ``end`` are ``earliest``,
    ``latest`` or positions: segments before one with a position are read to their ends, and all after it is unread.
    Only ``segments`` are read if they are given. Raises InvalidOption for a segment that there is not, or a position
    that it does not have, and DataLost for messages that are gone if ``fail_on_data_loss``; otherwise it logs them.
    """
    sealed = {entry.name: entry for entry in files.index.entries}
    predecessors = {it.name: it.predecessors for it in files.layout.segments}
    predecessors |= {it.name: it.predecessors for it in files.index.entries}
    _check_segments(segments, predecessors)
    first = start if isinstance(start, Mapping) else {}
    last = end if isinstance(end, Mapping) else None
    for positions in (first, last or {}):
        check_positions(files, positions, ends)
    losses = [it for name, at in first.items() if (it := _removed(files, name, at)) is not None]
    read_before = ancestors(first, lambda name: predecessors.get(name, ()))
    read_at_end = ancestors(last or {}, lambda name: predecessors.get(name, ()))
    found = {}
    chosen = predecessors if segments is None else segments
    for name in sorted(chosen, key=lambda it: highest_number((it,))):
        entry = sealed.get(name)
        known = entry.end if entry is not None else ends[name]
        begin = known if name in read_before else first.get(name, 0)
        stop = known if last is None or name in read_at_end else last.get(name, 0)
        if (
            entry is not None
            and entry.lost is not None
            and stop == known
            and begin <= known
            and name not in read_before
        ):
            losses.append(_lost(entry))
        if begin < stop:
            found[name] = begin, stop
    if losses and fail_on_data_loss:
        raise losses[0]
    for loss in losses:
        log.warning("%s", loss.message)
    return found


def _check_segments(wanted: Collection[str] | None, known: Collection[str]) -> None:
    for name in wanted or ():
        if name not in known:
            raise InvalidOption(f"the topic has no segment {name!r}{nearest(name, known)}", option="segments")


def check_positions(files: TopicFiles, positions: Mapping[str, int], ends: Mapping[str, int]) -> None:
    """Raises InvalidOption for a segment that the topic never had, and for a position past the segment's end.

    ``ends`` has the ends of living segments.
    """
    known = {**ends, **{entry.name: entry.end for entry in files.index.entries}}
    for name, offset in positions.items():
        if name not in known and not is_removed(name, files.index.removed):
            raise InvalidOption(f"there is a position of {name}, and the topic {files.topic} has no such segment")
        end = known.get(name)
        if end is not None and offset > end:
            raise InvalidOption(
                f"the position {offset} of {name} is past its end, {end}: it is of another topic, or messages that "
                "were read were lost afterwards"
            )


def _removed(files: TopicFiles, name: str, at: int) -> DataLost | None:
    """The loss if a position is before the end of a segment that retention has removed."""
    if not is_removed(name, files.index.removed):
        return None
    ends = {it.name: it.end for it in files.index.removed_segments}
    stop = ends.get(name)
    if stop is not None and at >= stop:
        return None
    return DataLost(
        f"retention has removed {name}, of which the messages from offset {at} on were not read",
        segment=name,
        start=at,
        stop=stop if stop is not None else at,
        at_least=stop is None,
    )


def _lost(entry: SealedSegment) -> DataLost:
    lost = entry.lost
    assert lost is not None
    return DataLost(
        f"{entry.name} has lost messages with all of its replicas: {lost}",
        segment=entry.name,
        start=lost.start,
        stop=lost.stop,
        at_least=lost.at_least,
    )
