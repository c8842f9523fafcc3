"""Which rows of a committed publish each segment gets, whoever computes it, after splits and merges."""

from __future__ import annotations

import itertools
import random

from smq_core.model.keyspace import KeyRange
from smq_core.producing.roll_forward import RowRange, SegmentBatches, TriedSegment, plan_roll_forward

FILE = [(0, 5), (2, 1), (3, 4), (7, 2)]
RING = KeyRange(0, 8)


def test_each_segment_gets_the_rows_of_its_partitions_file_by_file() -> None:
    segments = [TriedSegment(0, KeyRange(0, 3)), TriedSegment(1, KeyRange(3, 8))]
    plan = plan_roll_forward([FILE, [(4, 9)]], segments, ())
    assert plan.batches == (
        SegmentBatches(0, (RowRange(file=0, first_row=0, rows=6, partition_min=0, partition_max=2),)),
        SegmentBatches(
            1,
            (
                RowRange(file=0, first_row=6, rows=6, partition_min=3, partition_max=7),
                RowRange(file=1, first_row=0, rows=9, partition_min=4, partition_max=4),
            ),
        ),
    )
    assert not plan.complete
    assert plan_roll_forward([FILE, [(4, 9)]], segments, {0, 1}).complete


def test_successors_get_what_the_seal_does_not_have() -> None:
    files = [FILE, FILE, FILE]
    after = [TriedSegment(0, RING, 0), TriedSegment(1, KeyRange(0, 3)), TriedSegment(2, KeyRange(3, 8))]
    plan = plan_roll_forward(files, after, ())
    assert [rows.file for rows in plan.batches[0].ranges] == [1, 2]
    assert plan.batches[1].ranges == (
        RowRange(file=1, first_row=6, rows=6, partition_min=3, partition_max=7),
        RowRange(file=2, first_row=6, rows=6, partition_min=3, partition_max=7),
    )


def test_nothing_is_written_before_the_outcome_of_earlier_segments() -> None:
    """Also not if the segment between the two is sealed already, because it never opened."""
    sealing = [TriedSegment(0, RING), TriedSegment(1, KeyRange(0, 4), -1), TriedSegment(2, KeyRange(0, 4))]
    assert [it.segment for it in plan_roll_forward([FILE], sealing, ()).batches] == [0]
    assert plan_roll_forward([FILE], sealing, {0}).complete


def test_a_merged_segment_gets_the_ranges_between_those_that_are_there() -> None:
    split = [
        TriedSegment(0, KeyRange(0, 2), -1),
        TriedSegment(1, KeyRange(2, 4), 0),
        TriedSegment(2, KeyRange(4, 8), -1),
    ]
    plan = plan_roll_forward([FILE], [*split, TriedSegment(3, RING)], ())
    assert plan.batches == (
        SegmentBatches(
            3,
            (
                RowRange(file=0, first_row=0, rows=5, partition_min=0, partition_max=0),
                RowRange(file=0, first_row=10, rows=2, partition_min=7, partition_max=7),
            ),
        ),
    )


def test_what_was_acked_counts_less_than_the_seal() -> None:
    """Messages that were acked can be lost with all replicas. The seal chunk says what is left."""
    segments = [TriedSegment(0, RING, -1), TriedSegment(1, RING)]
    assert plan_roll_forward([FILE], segments, {0}).batches[0].segment == 1


def test_any_history_of_splits_and_merges_has_every_row_once() -> None:
    """Random seals after random numbers of batches, with attempts that see only a part of them."""
    for seed in range(200):
        dice = random.Random(seed)
        files = [_random_file(dice) for _ in range(dice.randint(1, 4))]
        log: dict[int, tuple[RowRange, ...]] = {}
        segments = [TriedSegment(0, KeyRange(0, 16))]
        while True:
            plan = plan_roll_forward(files, segments, ())
            for batches in plan.batches:
                had = log.get(batches.segment, ())
                assert batches.ranges[: len(had)] == had, "a sequence has another meaning than before"
                log[batches.segment] = batches.ranges[: dice.randint(len(had), len(batches.ranges))]
            living = [it for it in segments if it.last_sequence is None]
            if all(log.get(it.segment, ()) == it.ranges for it in plan.batches):
                break
            _replace(dice, segments, dice.choice(living), log)
        assert plan_roll_forward(files, segments, {it.number for it in segments}).complete
        rows = sorted(
            (r.file, row) for ranges in log.values() for r in ranges for row in range(r.first_row, r.first_row + r.rows)
        )
        assert rows == [(n, row) for n, file in enumerate(files) for row in range(sum(count for _, count in file))]


def _random_file(dice: random.Random) -> list[tuple[int, int]]:
    return [(partition, dice.randint(1, 3)) for partition in range(16) if dice.random() < 0.6]


def _replace(
    dice: random.Random, segments: list[TriedSegment], sealed: TriedSegment, log: dict[int, tuple[RowRange, ...]]
) -> None:
    """Seals the segment, alone or with a neighbour, and appends a successor or two."""
    neighbour = next((it for it in segments if it.last_sequence is None and it.range.start == sealed.range.stop), None)
    gone, covered = [sealed], sealed.range
    if neighbour is not None and dice.random() < 0.4:
        gone, covered = [sealed, neighbour], KeyRange(sealed.range.start, neighbour.range.stop)
    for segment in gone:
        at = segments.index(segment)
        segments[at] = TriedSegment(segment.number, segment.range, len(log.get(segment.number, ())) - 1)
    cuts = [covered.start, covered.stop]
    if covered.stop - covered.start > 1 and len(gone) == 1:
        cuts.insert(1, dice.randint(covered.start + 1, covered.stop - 1))
    for start, stop in itertools.pairwise(cuts):
        segments.append(TriedSegment(len(segments), KeyRange(start, stop)))
