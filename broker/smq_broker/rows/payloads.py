"""The rows of log entries, which share blocks.

An entry's payload refers to its block and its first row there. What was received together is a block at first; every
64 small blocks are joined into one Arrow batch. An entry with a reference has no rows here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby, repeat
from operator import attrgetter

import numpy as np
import pyarrow as pa

from smq_broker.rows.blocks import ArrowBlock, Block
from smq_core.replica.log_entries import Entry
from smq_storage.chunks.array_buffers import array_of
from smq_storage.chunks.schemas import TIMESTAMP

# How many small blocks are joined into one.
BLOCKS_PER_COMPACTION = 64

# Blocks of a chunk are copied into one of up to about this size, because the Parquet writer has a cost for each
# column of each batch. For small blocks that is several times what their rows cost.
JOIN_BYTES = 256 << 10

# A payload and its number of rows.
PayloadSpan = tuple["Payload", int]


class Payload:
    """``location`` is (block, first row). It is replaced atomically, so that readers need no lock."""

    __slots__ = ("location",)

    def __init__(self, block: Block, start: int = 0) -> None:
        self.location: tuple[Block, int] = (block, start)


class Compactor:
    """Collects small blocks. ``add`` is called in the order of the log, under the segment's lock."""

    def __init__(self) -> None:
        self._payload_spans: list[PayloadSpan] = []
        self._blocks = 0

    def add(self, spans: Sequence[PayloadSpan]) -> list[PayloadSpan] | None:
        """Adds a small block. Pass the result to ``compact``, after the lock is released."""
        if not spans:
            return None
        self._payload_spans.extend(spans)
        self._blocks += 1
        if self._blocks < BLOCKS_PER_COMPACTION:
            return None
        full, self._payload_spans, self._blocks = self._payload_spans, [], 0
        return full

    def clear(self) -> None:
        self._payload_spans, self._blocks = [], 0


def compact(spans: Sequence[PayloadSpan]) -> None:
    """Moves the rows of these payloads into one block."""
    move(spans, ArrowBlock(concat([part for part, _ in _contiguous_slices(spans)])))


def move(spans: Sequence[PayloadSpan], block: Block) -> None:
    """Lets these payloads refer to a block that has the same rows in their order."""
    at = 0
    for payload, rows in spans:
        payload.location = (block, at)
        at += rows


def concat(blocks: Iterable[Block]) -> pa.RecordBatch:
    """One Arrow batch with all rows. A single Arrow batch is not copied."""
    batches = [block.to_arrow() for block in _join_neighbours(blocks)]
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _join_neighbours(blocks: Iterable[Block]) -> list[Block]:
    joined: list[Block] = []
    for _, run in groupby(blocks, attrgetter("kind")):
        first, *others = run
        joined += first.join([first, *others])
    return joined


def block_of(entries: Iterable[Entry], empty: pa.RecordBatch) -> Block:
    """The rows of contiguous entries. Arrow batches are copied only if there are several.

    ``empty`` is the result if all entries have references.
    """
    blocks = _join_neighbours(part for part, _ in _contiguous_slices(payload_spans(entries)))
    return blocks[0] if len(blocks) == 1 else ArrowBlock(concat(blocks) if blocks else empty)


def rows_as_batch(entries: Iterable[Entry], empty: pa.RecordBatch, skip: int = 0) -> pa.RecordBatch:
    """As :func:`block_of`, without the first ``skip`` rows."""
    whole = block_of(entries, empty).to_arrow()
    return whole.slice(skip) if skip else whole


def batches_with_append_times(entries: Sequence[Entry]) -> list[tuple[pa.RecordBatch, int | pa.Array]]:
    """The rows of contiguous entries as few batches with append times: one time for all rows, or one per row.

    An entry with a reference must be alone, and gives none.
    """
    found: list[tuple[pa.RecordBatch, int | pa.Array]] = []
    spans = payload_spans(entries)
    appended = np.fromiter((entry.appended for entry in entries), np.int64, len(entries))
    rows = np.fromiter((count for _, count in spans), np.int64, len(spans))
    at = 0
    for part, count in _join_small(_contiguous_slices(spans)):
        first, stop = at, at + count
        at = stop
        if appended[first] == appended[stop - 1]:  # these times never decrease
            found.append((part, int(appended[first])))
            continue
        times = np.repeat(appended[first:stop], rows[first:stop])
        found.append((part, array_of(times, TIMESTAMP)))
    return found


def payload_spans(entries: Iterable[Entry]) -> list[PayloadSpan]:
    """The payloads of the entries that have rows here."""
    batches = (entry.batch for entry in entries)
    return [(it.payload, it.rows) for it in batches if it.reference is None]  # type: ignore[misc]


def _contiguous_slices(spans: Iterable[PayloadSpan]) -> list[tuple[Block, int]]:
    """Joins neighbours in one block into one slice; returns each slice and its number of payloads."""
    runs: list[tuple[Block, int, int, int]] = []  # block, first row, end, payloads
    block, first, end, count = None, 0, 0, 0
    for payload, rows in spans:
        next_block, start = payload.location
        if next_block is block and start == end:
            end += rows
            count += 1
            continue
        if block is not None:
            runs.append((block, first, end, count))
        block, first, end, count = next_block, start, start + rows, 1
    if block is not None:
        runs.append((block, first, end, count))
    return [
        (block if end - first == block.num_rows else block.slice(first, end - first), count)
        for block, first, end, count in runs
    ]


def _join_small(slices: Iterable[tuple[Block, int]]) -> list[tuple[pa.RecordBatch, int]]:
    """The same slices, but neighbours whose buffers have at most JOIN_BYTES together are copied into one."""
    groups: list[list[Block]] = []
    counts: list[int] = []
    size = 0
    for part, count in slices:
        nbytes = part.nbytes  # Arrow's own nbytes, which counts a slice exactly, takes 15 times as long
        size += nbytes
        if groups and size <= JOIN_BYTES:
            groups[-1].append(part)
            counts[-1] += count
        else:
            groups.append([part])
            counts.append(count)
            size = nbytes
    return list(zip(map(concat, groups), counts, strict=True))


def split_block(block: Block, rows: Sequence[int]) -> list[Payload]:
    """Payloads for entries that follow each other in one block."""
    starts = np.cumsum([0, *rows[:-1]]).tolist() if len(rows) > 1 else [0]
    return list(map(Payload, repeat(block), starts))
