"""What one task reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from pyspark.sql.datasource import InputPartition

from pyspark_smq.planning.wanted import TimeBounds
from smq.reading import TopicLocation
from smq_core.model.entities import Replica
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


@dataclass(frozen=True)
class RangePartition(InputPartition):
    """Ranges that one task reads one after the other.

    Only messages that were appended within ``appended`` are returned. ``pin`` is the id of the pin that keeps the
    files; the task renews it if ``renews``. ``on_loss``: as of :class:`smq.reading.RangeReader`.
    """

    location: TopicLocation
    ranges: tuple[PlannedRange, ...]
    on_loss: Literal["fail", "skip"] = "fail"
    pin: str | None = None
    renews: bool = False
    appended: TimeBounds = field(default_factory=TimeBounds)
