"""Decoded messages of a part of a file, split by partition once, because a consumer of all partitions reads each."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from smq_storage.chunks.array_buffers import array_of, numbers_of
from smq_storage.uploads.upload_format import PARTITION, sort_order


class SplitRows:
    """``table`` has the messages in the order of the log. Those of a partition keep that order.

    ``counts`` has the number of messages of each partition, without empty ones.
    """

    def __init__(self, table: pa.Table) -> None:
        partitions = numbers_of(table.column(PARTITION))
        if len(partitions) and not (partitions[:-1] <= partitions[1:]).all():
            order = sort_order(partitions)
            table, partitions = table.combine_chunks().take(array_of(order, pa.int64())), partitions[order]
        self._table = table.replace_schema_metadata()
        self._partitions, starts = np.unique(partitions, return_index=True)
        self._starts = np.append(starts, len(partitions))
        self.counts = dict(zip(self._partitions.tolist(), np.diff(self._starts).tolist(), strict=True))
        self._sizes = np.cumsum(_row_bytes(table))

    @property
    def bytes(self) -> int:
        return int(self._table.nbytes) + self._sizes.nbytes

    def rows(self, partition: int, index: int, max_bytes: int) -> tuple[pa.Table, int]:
        """The messages of the partition from the ``index``-th on, of about ``max_bytes``, at least one if there is one.

        Also how many of these bytes are left if they are all that there are, and 0 if not. Copies nothing.
        """
        at = int(np.searchsorted(self._partitions, partition))
        if at == len(self._partitions) or self._partitions[at] != partition:
            return self._table.slice(0, 0), max_bytes
        start, stop = int(self._starts[at]) + index, int(self._starts[at + 1])
        if start >= stop:
            return self._table.slice(0, 0), max_bytes
        before = int(self._sizes[start - 1]) if start else 0
        fitting = max(int(np.searchsorted(self._sizes, before + max_bytes, side="right")), start + 1)
        left = before + max_bytes - int(self._sizes[stop - 1]) if fitting >= stop else 0
        return self._table.slice(start, min(stop, fitting) - start), max(left, 0)


def _row_bytes(table: pa.Table) -> npt.NDArray[np.int64]:
    """The bytes of text and binary values of each message, and its share of all others. Shape (rows,)."""
    import pyarrow.compute as pc  # as in upload_format.footer_of

    sizes, others = np.zeros(table.num_rows, np.int64), 0
    for column in table.columns:
        if pa.types.is_binary(column.type) or pa.types.is_string(column.type):
            sizes += numbers_of(pc.fill_null(pc.binary_length(column), 0))
        else:
            others += column.nbytes
    sizes += others // max(1, table.num_rows)
    return sizes
