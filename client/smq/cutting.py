"""Batches cut by segment, and the table that says which partition goes where."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from smq.delivery import Fate, Rows
from smq_core.model import Segment


@dataclass(slots=True)
class Piece:
    """Rows of one batch that belong to one segment. ``rows`` are their indices in the batch, None: all of them.

    ``cost`` is what they take of the producer's budget, in bytes; ``born`` when they were handed over (monotonic
    seconds). An ``expired`` one was reported as timed out, but its outcome is still to be learnt.
    """

    batch: pa.RecordBatch
    fate: Fate
    rows: Rows
    cost: int
    born: float
    expired: bool = False


@dataclass(frozen=True, slots=True)
class Route:
    """Where each partition goes: ``segments[table[partition]]``. ``table`` is uint16 of shape (P,)."""

    segments: tuple[Segment, ...]
    table: npt.NDArray[np.uint16]

    @staticmethod
    def of(segments: Iterable[Segment], partitions: int) -> Route:
        """Raises ValueError when the segments do not cover the ring."""
        chosen = tuple(segments)
        table = np.full(partitions, 0xFFFF, np.uint16)
        for number, segment in enumerate(chosen):
            table[segment.range.start : segment.range.stop] = number
        if (table == 0xFFFF).any():
            raise ValueError("the segments do not cover the ring")
        return Route(chosen, table)

    def to(self, partition: int) -> Segment:
        return self.segments[self.table[partition]]

    def under(self, segments: Sequence[Segment]) -> Route:
        """This route with these segments laid over it."""
        table = self.table.copy()
        for number, segment in enumerate(segments, len(self.segments)):
            table[segment.range.start : segment.range.stop] = number
        return Route((*self.segments, *segments), table)

    def replaced(self, old: Segment, by: Route) -> Route:
        """This route with the partitions of ``old`` going where ``by`` says; all others stay."""
        names = {s.name: i for i, s in enumerate(self.segments)}
        if old.name not in names:
            return self
        mine = np.flatnonzero(self.table == names[old.name])
        segments = [s for s in self.segments if s.name != old.name]
        numbers = {s.name: i for i, s in enumerate(segments)}
        table = np.array([numbers.get(s.name, 0) for s in self.segments], np.uint16)[self.table]
        targets = by.table[mine]
        for number in np.unique(targets):
            segment = by.segments[number]
            if segment.name not in numbers:
                numbers[segment.name] = len(segments)
                segments.append(segment)
            table[mine[targets == number]] = numbers[segment.name]
        return Route(tuple(segments), table)


def cut(piece: Piece, places: npt.NDArray[np.int32], route: Route) -> list[tuple[Segment, Piece]]:
    """The piece by segment; the rows of each keep their order. ``places`` are its rows' partitions.

    Nothing is copied when all rows go to one segment.
    """
    if len(route.segments) == 1:
        return [(route.segments[0], piece)]
    targets = route.table[places]
    first = int(targets[0])
    if (targets == first).all():
        return [(route.segments[first], piece)]
    order = np.argsort(targets, kind="stable")
    taken = piece.batch.take(pa.array(order))
    counts = np.bincount(targets, minlength=len(route.segments))
    rows = order if piece.rows is None else piece.rows[order]
    parts: list[tuple[Segment, Piece]] = []
    at, left, total = 0, piece.cost, piece.batch.num_rows
    for number, count in enumerate(counts.tolist()):
        if not count:
            continue
        stop = at + count
        cost = left if stop == total else piece.cost * count // total
        left -= cost
        part = Piece(taken.slice(at, count), piece.fate, rows[at:stop], cost, piece.born, piece.expired)
        parts.append((route.segments[number], part))
        at = stop
    return parts
