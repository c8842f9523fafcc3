"""One more invariant, beside those of ``invariants.py`` and of the elastic histories.

20. Kafka's offsets of a partition are dense through all segments that had it, and never used again. After a loss they
    jump.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from smq_core.invariants import Violation
from smq_core.model.keyspace import KeyRange
from smq_core.model.partition_offsets import PartitionOffsets


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedSegment:
    """A segment whose partitions have Kafka's offsets.

    ``rows`` has the partition of each message that is in the log, by offset. ``recorded`` is what the chunks and the
    seal chunk say, each with the offset at which it was true, in their order. It is empty if there are none, or if the
    segment was sealed empty and unread. ``jump`` is by how much its successors have to jump at least.
    """

    name: str
    number: int
    range: KeyRange
    rows: Sequence[int]
    recorded: Sequence[tuple[int, PartitionOffsets]]
    jump: int = 0


def partition_offsets_hold(segments: Iterable[CountedSegment]) -> list[Violation]:
    """(20) ``segments`` are all that a topic ever had."""
    violations: list[Violation] = []
    ends: defaultdict[int, int] = defaultdict(int)
    jumps: defaultdict[int, int] = defaultdict(int)
    for segment in sorted(segments, key=lambda it: it.number):
        starts: dict[int, int] = {}
        for upto, offsets in segment.recorded:
            counts = Counter(segment.rows[:upto])
            for partition in range(segment.range.start, segment.range.stop):
                found, count = offsets.end(partition), counts[partition]
                start = starts.setdefault(partition, found - count) if count else found
                jump = jumps[partition] if count else 0
                is_right = start >= ends[partition] + jump if jump else start == ends[partition]
                if not is_right or found != start + count:
                    what = f"partition {partition} ends at {found} with {count} messages up to offset {upto}"
                    before = f"it ended at {ends[partition]} before, and has to jump by {jump}"
                    violations.append(Violation(20, segment.name, f"{what}; {before}"))
        for partition, start in starts.items():
            ends[partition], jumps[partition] = start + segment.rows.count(partition), 0
        for partition in range(segment.range.start, segment.range.stop):
            jumps[partition] += segment.jump
    return violations
