"""The deliveries of what was published by reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from smq.delivery import FileReceipt, FilesReceipt, PublishedRange
from smq.producing.delivery_state import BatchesDelivery, DeliveryState, RowIndices
from smq.producing.uploads.uploaded_rows import PartitionIndex
from smq_core.errors import ReferenceRejected


class UploadDeliveryState(DeliveryState):
    """The outcome of one upload. Its "rows" are the partitions of the index: one outcome covers all messages of one.

    ``order`` has the row of the program's table for each row of the file; None if nobody needs it.
    """

    __slots__ = ("_index", "_order")

    def __init__(self, index: PartitionIndex, order: npt.NDArray[np.uint32] | None, lock: Any) -> None:
        super().__init__(len(index.partitions), lock)
        self._index = index
        self._order = order

    def _offsets_from(self, first: int, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        starts = self._index.starts
        return first + starts[rows] - starts[rows[0]]

    def all_rows(self) -> RowIndices:
        """What a sub-batch with the whole upload has as its rows."""
        return np.arange(self.rows)

    def table(self) -> tuple[list[str], npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """As of any batch: for each row of the program's table."""
        segments, indices, first = super().table()
        assert self._order is not None
        counts = self._index.counts
        within = np.arange(self._index.starts[-1]) - np.repeat(self._index.starts[:-1], counts)
        offsets = np.repeat(first, counts)
        offsets = np.where(offsets >= 0, offsets + within, offsets)
        row_indices, row_offsets = np.empty(len(offsets), np.int32), np.empty(len(offsets), np.int64)
        row_indices[self._order] = np.repeat(indices, counts)
        row_offsets[self._order] = offsets
        return segments, row_indices, row_offsets

    def ranges(self) -> list[PublishedRange]:
        """Where the messages are; those with consecutive offsets in one segment share a range."""
        segments, indices, offsets = super().table()
        found: list[PublishedRange] = []
        for at, first, rows in zip(indices.tolist(), offsets.tolist(), self._index.counts.tolist(), strict=True):
            known = first if first >= 0 else None
            last = found[-1] if found else None
            if last is not None and last.segment == segments[at] and last.stop == known:
                found[-1] = PublishedRange(last.segment, last.first_offset, last.rows + rows)
            else:
                found.append(PublishedRange(segments[at], known, rows))
        return found


class FilesDelivery(BatchesDelivery[FilesReceipt]):
    """The delivery of files: ``names`` has the file of each upload, in the order in which they were given."""

    __slots__ = ("_files", "_names")

    def __init__(self, files: Sequence[str], names: Sequence[int], states: Sequence[UploadDeliveryState]) -> None:
        super().__init__(states)
        self._files = files
        self._names = names

    def exception(self, timeout: float | None = None) -> BaseException | None:
        error = super().exception(timeout)
        if not isinstance(error, ReferenceRejected):
            return error
        number = next(n for n, state in zip(self._names, self._states, strict=True) if state.first_error() is error)
        return ReferenceRejected(f"{self._files[number]}: {error.message}", upload=error.upload, field=error.field)

    def _receipt(self) -> FilesReceipt:
        ranges: list[list[PublishedRange]] = [[] for _ in self._files]
        for number, state in zip(self._names, self._states, strict=True):
            assert isinstance(state, UploadDeliveryState)
            ranges[number] += state.ranges()
        return FilesReceipt(tuple(FileReceipt(name, tuple(own)) for name, own in zip(self._files, ranges, strict=True)))
