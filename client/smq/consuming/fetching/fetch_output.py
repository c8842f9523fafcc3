"""What one reader has read of its segment, on its way into the prefetch buffer; its position moves with it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from smq.consuming.fetching.fetch_plan import FetchPlan
from smq.consuming.fetching.fetch_progress import FetchProgress
from smq.consuming.fetching.large_values import LargeValueReader
from smq.consuming.fetching.prefetch_buffer import (
    FetchedItem,
    FetchedItemSource,
    FetchedLoss,
    FetchedRows,
    PrefetchBuffer,
    SegmentEnd,
)
from smq.consuming.reader_losses import loss_for_reader
from smq_core.errors import DataLost
from smq_core.model.loss import Loss
from smq_storage.chunks.schemas import TIMESTAMP
from smq_storage.uploads.large_values import LargeValue, find_large_values

log = logging.getLogger(__name__)


class OpenTail(FetchedItemSource, Protocol):
    """The reader whose output this is, which may have a stream open to a replica."""

    def touch_stream(self) -> None:
        """The filer was read meanwhile, so a missing frame is not the replica's fault."""

    def end_publication(self) -> None:
        """The next call may block, so whoever reads by this reader's stream has to go on by itself."""


class FetchOutput:
    """See the module's docstring. The ``put`` methods return False if the reader has to stop reading now.

    ``buffer`` takes items of readers of the kind of ``tail``.
    """

    def __init__(
        self,
        *,
        tail: OpenTail,
        buffer: PrefetchBuffer[Any],
        plan: FetchPlan,
        max_bytes: int,
        large_values: LargeValueReader | None,
        progress: FetchProgress,
    ) -> None:
        self.position = plan.position
        self.since = plan.since
        self.watermark = plan.sealed.end if plan.sealed is not None else plan.position
        self.watermark_known = False
        """Whether a replica (or the chunk chain, if there is no replica) has reported the watermark."""
        self.at_boundary = plan.position == 0
        """Whether a chunk begins at the position, or will."""
        self.may_wait = True
        """False while another reader's thread puts frames in: it must not wait for this one's program."""
        self._tail = tail
        self._buffer = buffer
        self._segment = plan.segment
        self._max_bytes = max_bytes
        self._large_values = large_values
        self._progress = progress
        buffer.open(tail)

    @property
    def dropped_upto(self) -> int:
        """Up to here all messages were dropped, because they were appended before the start; 0 if some were not."""
        return self.position if self.since else 0

    def put_item(self, item: FetchedItem) -> bool:
        """Waits until there is capacity."""
        return self._buffer.put(self._tail, item)

    def put(
        self,
        table: pa.Table,
        first: int,
        nbytes: int | None = None,
        large_values: Mapping[int, LargeValue] | None = None,
    ) -> bool:
        """Puts the rows from the position on into the buffer, in parts of limited size.

        ``nbytes`` is the size of the table, and ``large_values`` are its rows whose values are in objects, if that is
        known. False without ``may_wait`` also means that there is no capacity, or that a value has to be fetched; the
        position says how far it came.
        """
        row_bytes = (table.nbytes if nbytes is None else nbytes) / max(1, table.num_rows)
        skip = self.position - first
        if skip > 0:
            table = table.slice(skip)
        if self.since:
            table = self._drop_before_start(table)
        if self._large_values is None:
            large_values = {}
        elif large_values is None or (large_values and self.position != first):  # what was skipped counts no more
            large_values = find_large_values(table)
        begin = 0
        for row, large in large_values.items():
            before = table.slice(begin, row - begin)
            if not self._put_rows(before, row_bytes) or not self._put_large(table.slice(row, 1), large):
                return False
            begin = row + 1
        return self._put_rows(table.slice(begin) if begin else table, row_bytes)

    def put_loss(self, end: int, file: str) -> bool:
        """Reports that the messages up to ``end`` are lost with a file that is gone or altered, and goes on there."""
        if not self.put_item(FetchedLoss(Loss(self.position, end), file)):
            return False
        self.position = end
        return True

    def put_end(self, end: int, lost: Loss | None) -> None:
        """Reports the end of the segment, and before it what was lost there."""
        loss = loss_for_reader(self.position, lost)
        if loss is not None:
            self.put_item(FetchedLoss(loss))
        self.put_item(SegmentEnd(end))

    def put_removed(self, end: int | None) -> None:
        """Reports that nothing is left from the position on. ``end``: that of the segment, if it is known."""
        if end is None or end > self.position:
            self.put_item(FetchedLoss(Loss.from_offset(self.position, end)))
        self.put_item(SegmentEnd(self.position if end is None else end))

    def _drop_before_start(self, table: pa.Table) -> pa.Table:
        """Drops the rows that were appended before ``since``. Append times never decrease, so they are a prefix."""
        early = pc.sum(pc.less(table.column("appended"), pa.scalar(self.since, TIMESTAMP))).as_py() or 0
        self.position += early
        if early < table.num_rows:
            self.since = 0
        return table.slice(early)

    def _put_large(self, message: pa.Table, large: LargeValue) -> bool:
        """Puts a message with its value into the buffer, or reports that the value is gone."""
        assert self._large_values is not None
        if not self.may_wait:
            return False
        self._tail.end_publication()
        try:
            filled = self._large_values.fill(message, large, self._segment, self.position)
        except DataLost as error:
            log.warning("reading %s: %s", self._segment, error.message)
            return self.put_loss(self.position + 1, error.path)
        finally:
            self._progress.value_fetched()
            self._tail.touch_stream()
        return self._put_rows(filled, filled.nbytes)

    def _put_rows(self, table: pa.Table, row_bytes: float) -> bool:
        rows = table.num_rows
        per_part = max(1, int(self._max_bytes / max(1.0, row_bytes)))
        for start in range(0, rows, per_part):
            if not self._put_part(table if rows <= per_part else table.slice(start, per_part), row_bytes):
                return False
        return True

    def _put_part(self, part: pa.Table, row_bytes: float) -> bool:
        item = FetchedRows(part, self.position, int(row_bytes * part.num_rows))
        if not self._buffer.try_put(self._tail, item):
            if not self.may_wait:
                return False
            self._tail.end_publication()
            if not self.put_item(item):
                return False
        self.position = item.end
        return True
