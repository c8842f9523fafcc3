"""Which row ranges of a committed atomic publish each segment gets, and with which sequences.

All rows are written by one producer id and epoch. The batches of a segment follow from the files and from the seal
outcomes of the segments before it, neither of which ever changes. So whoever computes them, and however often, gets the
same ranges with the same sequences, and a segment takes what it has already for a repeat:

* A segment gets, file by file, the rows of its partitions that no earlier segment has. A run of partitions without a
  gap is one range, and range n has sequence n.
* An earlier segment has its first ranges, up to the producer's last sequence in its seal chunk.
* A segment is not written to while an earlier one with some of its partitions is neither sealed nor complete.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from smq_core.model.keyspace import KeyRange

# ``(partition, rows)`` of one file, in its order, which is that of the partitions.
FilePartitions = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRange:
    """Rows of one file, which have partitions ``partition_min .. partition_max``. ``file`` is its number."""

    file: int
    first_row: int
    rows: int
    partition_min: int
    partition_max: int


@dataclass(frozen=True, slots=True)
class TriedSegment:
    """A segment that may have rows of the publish.

    ``last_sequence`` is the producer's in its seal chunk, -1 if the chunk has none of this epoch, and None if the
    segment is not sealed.
    """

    number: int
    range: KeyRange
    last_sequence: int | None = None


@dataclass(frozen=True, slots=True)
class SegmentBatches:
    """What to write to a segment: range ``n`` with sequence ``n``."""

    segment: int
    ranges: tuple[RowRange, ...]


@dataclass(frozen=True, slots=True)
class RollForward:
    """``batches`` can be written now. ``complete`` if every row is in the log."""

    batches: tuple[SegmentBatches, ...]
    complete: bool


def plan_roll_forward(
    files: Sequence[FilePartitions], segments: Iterable[TriedSegment], acked: Collection[int]
) -> RollForward:
    """What is left to write.

    ``segments`` must have every segment that may have rows of the publish, and all that cover the ring now. ``acked``
    has the numbers of those that have acked all their ranges.
    """
    starts = [list(accumulate((rows for _, rows in file), initial=0)) for file in files]
    missing = [[True] * len(file) for file in files]
    batches: list[SegmentBatches] = []
    unclear: list[KeyRange] = []
    for segment in sorted(segments, key=lambda it: it.number):
        runs = [run for file in range(len(files)) for run in _runs(file, files[file], missing[file], segment.range)]
        if any(segment.range.overlaps(earlier) for earlier in unclear):
            unclear.append(segment.range)
            continue
        if segment.last_sequence is not None:
            written = runs[: segment.last_sequence + 1]
        elif segment.number in acked or not runs:
            written = runs
        else:
            written = []
            unclear.append(segment.range)
            ranges = tuple(_row_range(file, files[file], starts[file], first, stop) for file, first, stop in runs)
            batches.append(SegmentBatches(segment.number, ranges))
        for file, first, stop in written:
            missing[file][first:stop] = [False] * (stop - first)
    return RollForward(tuple(batches), not any(any(flags) for flags in missing))


def _runs(
    number: int, file: FilePartitions, missing: Sequence[bool], partitions: KeyRange
) -> list[tuple[int, int, int]]:
    """``(file, first, stop)``, indices into ``file``, of the partitions that are missing, neighbours together."""
    found: list[tuple[int, int, int]] = []
    for at, (partition, _) in enumerate(file):
        if missing[at] and partition in partitions:
            if found and found[-1][2] == at:
                found[-1] = number, found[-1][1], at + 1
            else:
                found.append((number, at, at + 1))
    return found


def _row_range(number: int, file: FilePartitions, starts: Sequence[int], first: int, stop: int) -> RowRange:
    return RowRange(
        file=number,
        first_row=starts[first],
        rows=starts[stop] - starts[first],
        partition_min=file[first][0],
        partition_max=file[stop - 1][0],
    )
