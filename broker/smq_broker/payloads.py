"""Where the rows of log entries lie: in blocks that they share, because a record batch of its own costs 5 KB.

An entry's payload says which block and where it starts there. Small batches get blocks of their own when they come,
and every 64 of them are then joined into one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat

import numpy as np
import pyarrow as pa

from smq_core.entries import Entry
from smq_storage.schemas import TIMESTAMP

BLOCKS = 64
"""So many small blocks are joined into one."""

Place = tuple["Payload", int]
"""A payload and its number of rows."""


class Payload:
    """``at`` is (block, first row); it is replaced as a whole, so that readers need no lock."""

    __slots__ = ("at",)

    def __init__(self, block: pa.RecordBatch, start: int = 0) -> None:
        self.at: tuple[pa.RecordBatch, int] = (block, start)


class Compactor:
    """Collects the places of small blocks. ``add`` is called in the order of the log, under the segment's lock."""

    def __init__(self) -> None:
        self._places: list[Place] = []
        self._blocks = 0

    def add(self, places: Sequence[Place]) -> list[Place] | None:
        """One more small block. What is returned is to be given to ``compact``, best without the lock."""
        self._places.extend(places)
        self._blocks += 1
        if self._blocks < BLOCKS:
            return None
        full, self._places, self._blocks = self._places, [], 0
        return full

    def clear(self) -> None:
        self._places, self._blocks = [], 0


def compact(places: Sequence[Place]) -> None:
    """Moves the rows of these payloads into one block."""
    block = join([part for part, _ in _runs(places)])
    at = 0
    for payload, rows in places:
        payload.at = (block, at)
        at += rows


def join(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """One batch with the rows of all; the only one is not copied."""
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def rows_of(entries: Iterable[Entry], skip: int = 0) -> pa.RecordBatch:
    """The rows of contiguous entries as one batch, without the first ``skip`` ones; copied only when scattered."""
    whole = join([part for part, _ in _runs(_places(entries))])
    return whole.slice(skip) if skip else whole


def timed(entries: Sequence[Entry]) -> list[tuple[pa.RecordBatch, int | pa.Array]]:
    """The rows of contiguous entries in few batches, each with its append times: one for all rows, or one per row."""
    found: list[tuple[pa.RecordBatch, int | pa.Array]] = []
    at = 0
    for part, count in _runs(_places(entries)):
        of_run = entries[at : at + count]
        at += count
        if all(entry.appended == of_run[0].appended for entry in of_run):
            found.append((part, of_run[0].appended))
            continue
        times = np.repeat([e.appended for e in of_run], [e.batch.rows for e in of_run])
        found.append((part, pa.array(times, pa.int64()).cast(TIMESTAMP)))
    return found


def _places(entries: Iterable[Entry]) -> Iterable[Place]:
    return [(entry.batch.payload, entry.batch.rows) for entry in entries]  # type: ignore[misc]


def _runs(places: Iterable[Place]) -> list[tuple[pa.RecordBatch, int]]:
    """Neighbours in one block as one slice, and how many payloads it has."""
    runs: list[tuple[pa.RecordBatch, int, int, int]] = []  # block, start, rows, payloads
    for payload, rows in places:
        block, start = payload.at
        if runs:
            last, last_start, last_rows, count = runs[-1]
            if last is block and last_start + last_rows == start:
                runs[-1] = (block, last_start, last_rows + rows, count + 1)
                continue
        runs.append((block, start, rows, 1))
    return [
        (block if rows == block.num_rows else block.slice(start, rows), count) for block, start, rows, count in runs
    ]


def places_in(block: pa.RecordBatch, rows: Sequence[int]) -> list[Payload]:
    """Payloads for entries that lie in one block one after the other."""
    starts = np.cumsum([0, *rows[:-1]]).tolist() if len(rows) > 1 else [0]
    return list(map(Payload, repeat(block), starts))
