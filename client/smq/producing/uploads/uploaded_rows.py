"""Rows of an upload, as the producer's queues hold them: a range of partitions of one file, and no bytes of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from smq_core.model.reference import Reference


@dataclass(frozen=True, slots=True, eq=False)
class PartitionIndex:
    """Where the rows of each partition are in a file that is sorted by partition.

    ``partitions`` has those with rows, ascending, int32 of shape (n,). ``starts`` has the first row of each and the
    number of all rows at the end, int64 of shape (n + 1,). ``earliest`` and ``latest`` are the bounds of the messages'
    timestamps, int64 microseconds of shape (n,).
    """

    partitions: npt.NDArray[np.int32]
    starts: npt.NDArray[np.int64]
    earliest: npt.NDArray[np.int64]
    latest: npt.NDArray[np.int64]

    @staticmethod
    def of(partitions: npt.NDArray[np.int32], timestamps: npt.NDArray[np.int64]) -> PartitionIndex:
        """The index of at least one sorted row; both arrays have the shape (rows,)."""
        first = np.concatenate([[0], np.flatnonzero(np.diff(partitions)) + 1]).astype(np.int64)
        return PartitionIndex(
            partitions[first],
            np.append(first, len(partitions)),
            np.minimum.reduceat(timestamps, first),
            np.maximum.reduceat(timestamps, first),
        )

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """The number of rows of each partition, int64 of shape (n,)."""
        return np.diff(self.starts)

    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Each partition and its number of rows, as in the footer of an upload."""
        return tuple(zip(self.partitions.tolist(), self.counts.tolist(), strict=True))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class UploadedFile:
    """An upload that the store has. ``name`` is the file's name, ``size`` is in bytes."""

    name: str
    etag: str
    size: int
    schema_version: int
    index: PartitionIndex


@dataclass(frozen=True, slots=True)
class UploadedRows:
    """The rows of the partitions ``file.index.partitions[first:stop]``, in place of a batch with these rows."""

    file: UploadedFile
    first: int
    stop: int

    @staticmethod
    def all_of(file: UploadedFile) -> UploadedRows:
        return UploadedRows(file, 0, len(file.index.partitions))

    @property
    def partitions(self) -> npt.NDArray[np.int32]:
        """Those that have rows, ascending."""
        return self.file.index.partitions[self.first : self.stop]

    @property
    def num_rows(self) -> int:
        return int(self.file.index.starts[self.stop] - self.file.index.starts[self.first])

    def runs(self, targets: npt.NDArray[np.uint16]) -> Iterator[tuple[int, UploadedRows]]:
        """Splits the rows where the target changes. ``targets`` has the target of each of ``partitions``."""
        bounds = [0, *(np.flatnonzero(np.diff(targets)) + 1).tolist(), len(targets)]
        for start, stop in itertools.pairwise(bounds):
            yield int(targets[start]), replace(self, first=self.first + start, stop=self.first + stop)

    def reference(self) -> Reference:
        index = self.file.index
        own = slice(self.first, self.stop)
        return Reference(
            upload=self.file.name,
            etag=self.file.etag,
            first_row=int(index.starts[self.first]),
            rows=self.num_rows,
            bytes=max(1, self.file.size * self.num_rows // int(index.starts[-1])),
            partition_min=int(self.partitions[0]),
            partition_max=int(self.partitions[-1]),
            timestamp_min=int(index.earliest[own].min()),
            timestamp_max=int(index.latest[own].max()),
            schema_version=self.file.schema_version,
        )
