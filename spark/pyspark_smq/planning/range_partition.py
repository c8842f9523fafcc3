"""What one task reads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from pyspark.sql.datasource import InputPartition

from pyspark_smq.planning.wanted import TimeBounds
from smq.reading import TopicLocation, TopicState
from smq_core.model.entities import Micros, Replica
from smq_core.reading.pins import DEFAULT_LIFETIME
from smq_core.reading.segment_ranges import SegmentRange
from smq_storage.tables.segment_files import StoredSegment


@dataclass(frozen=True, slots=True)
class PlannedRange:
    """The messages ``start .. stop - 1`` of a segment, and where they were when the read was planned.

    ``flushed`` is the offset up to which they were in files; None if that is not known.
    """

    segment: StoredSegment
    start: int
    stop: int
    replicas: tuple[Replica, ...] = ()
    flushed: int | None = None


def planned_ranges(state: TopicState, ranges: Iterable[SegmentRange], files_only: bool) -> tuple[PlannedRange, ...]:
    """These ranges with where they are now."""
    segments = state.segments()
    return tuple(
        PlannedRange(
            segments[it.segment],
            it.start,
            it.stop,
            () if files_only else state.replicas(it.segment),
            None if files_only else state.flushed.get(it.segment),
        )
        for it in ranges
    )


@dataclass(frozen=True)
class RangePartition(InputPartition):
    """Ranges that one task reads one after the other.

    Only messages that were appended within ``appended`` are returned. ``pin`` is the id of the pin that keeps the
    files; the task renews it if ``renews``, after each third of ``pin_lifetime``. ``on_loss``: as of
    :class:`smq.reading.RangeReader`.
    """

    location: TopicLocation
    ranges: tuple[PlannedRange, ...]
    on_loss: Literal["fail", "skip"] = "fail"
    pin: str | None = None
    renews: bool = False
    appended: TimeBounds = field(default_factory=TimeBounds)
    pin_lifetime: Micros = DEFAULT_LIFETIME
