"""Divides what is to be read into tasks of about the same size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from smq_core.reading.segment_ranges import SegmentRange


@dataclass(frozen=True, slots=True)
class SizedRange:
    """A range in one place, such as a file, with an estimate of its size in bytes."""

    range: SegmentRange
    bytes: int


def divide(sized: Sequence[SizedRange], max_bytes: int, min_partitions: int | None = None) -> list[list[SegmentRange]]:
    """The ranges of each partition, in the given order, without an empty one.

    A partition has at most ``max_bytes`` of estimated size, and ``min_partitions`` makes it smaller, so that there are
    that many. Only a partition of one message may be larger.
    """
    total = sum(max(1, one.bytes) for one in sized)
    limit = max_bytes if min_partitions is None else max(1, min(max_bytes, total // min_partitions))
    partitions: list[list[SegmentRange]] = []
    left = 0
    for one in sized:
        for part in _parts(one, limit):
            size = max(1, part.bytes)
            if not partitions or size > left:
                partitions.append([])
                left = limit
            left -= size
            _add(partitions[-1], part.range)
    return partitions


def _parts(one: SizedRange, limit: int) -> Iterable[SizedRange]:
    """It in equal parts of at most ``limit`` bytes."""
    whole = one.range
    count = max(1, min(whole.count, -(-one.bytes // limit)))
    bounds = [whole.start + whole.count * n // count for n in range(count + 1)]
    for start, stop in pairwise(bounds):
        if start < stop:
            size = one.bytes * (stop - start) // whole.count
            yield SizedRange(SegmentRange(whole.segment, start, stop), size)


def _add(ranges: list[SegmentRange], new: SegmentRange) -> None:
    last = ranges[-1] if ranges else None
    if last is not None and (last.segment, last.stop) == (new.segment, new.start):
        ranges[-1] = SegmentRange(new.segment, last.start, new.stop)
    else:
        ranges.append(new)
