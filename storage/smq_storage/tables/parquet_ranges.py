"""Which bytes of a Parquet file hold some rows and columns, and a file object that requests only those bytes."""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow.parquet as pq

from smq_core.errors import CorruptChunk
from smq_core.model.segment_manifest import ManifestFile
from smq_storage.chunks.parquet_codec import TAIL_BYTES, decode_footer, footer_bytes
from smq_storage.object_store.store import Store

PART_BYTES = 8 * 1024 * 1024
"""Row groups are requested and decoded together while they have at most that many bytes."""

MAX_HOLE_BYTES = 64 * 1024
"""So many bytes that are not wanted are requested too, where that saves a request."""

ByteRange = tuple[int, int]


@dataclass(frozen=True, slots=True)
class RowGroups:
    """Neighbouring row groups with the offsets ``first .. end - 1``, and the ranges of bytes with their columns."""

    numbers: list[int]
    first: int
    end: int
    ranges: list[ByteRange]


def read_footer(store: Store, file: ManifestFile) -> pq.FileMetaData:
    """The footer, by one request or two. Raises CorruptChunk, ObjectMissing, EtagMismatch, StoreUnavailable."""
    tail = store.get_range(file.path, max(0, file.bytes - TAIL_BYTES), file.bytes, file.etag)
    need = footer_bytes(tail)
    if len(tail) < need <= file.bytes:
        tail = store.get_range(file.path, file.bytes - need, file.bytes, file.etag)
    return decode_footer(tail)


def select_row_groups(
    footer: pq.FileMetaData, file: ManifestFile, start: int, stop: int, columns: Sequence[str] | None
) -> Iterator[RowGroups]:
    """The row groups with any of the offsets ``start .. stop - 1``, in parts. Raises CorruptChunk.

    Each part has at most ``PART_BYTES`` of the columns, or one row group.
    """
    if footer.num_rows != file.rows:
        raise CorruptChunk(f"it has {footer.num_rows} rows, not {file.rows}", path=file.path)
    part, size = RowGroups([], file.first, file.first, []), 0
    end = file.first
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        first, end = end, end + group.num_rows
        if end <= start or first >= stop:
            continue
        ranges = _byte_ranges(group, columns)
        group_size = sum(stop - start for start, stop in ranges)
        if part.numbers and size + group_size > PART_BYTES:
            yield part
            part, size = RowGroups([], first, first, []), 0
        begin = part.first if part.numbers else first
        part = RowGroups([*part.numbers, number], begin, end, _merge([*part.ranges, *ranges]))
        size += group_size
    if part.numbers:
        yield part


class RangedFile(io.RawIOBase):
    """A read-only file of which the given ranges are requested now, and everything else when it is read.

    Raises ObjectMissing, EtagMismatch and StoreUnavailable.
    """

    def __init__(self, store: Store, file: ManifestFile, ranges: Sequence[ByteRange]) -> None:
        super().__init__()
        self._store = store
        self._file = file
        self._at = 0
        self._starts = [start for start, _ in ranges]
        self._parts = [self._request(start, stop) for start, stop in ranges]

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._file.bytes}[whence]
        self._at = base + offset
        return self._at

    def read(self, size: int = -1) -> memoryview:  # a view, so that Arrow copies nothing
        start = self._at
        stop = self._file.bytes if size < 0 else min(start + size, self._file.bytes)
        self._at = max(start, stop)
        number = bisect_right(self._starts, start) - 1
        if number >= 0:
            part, base = self._parts[number], self._starts[number]
            if stop <= base + len(part):
                return part[start - base : stop - base]
        return self._request(start, stop)

    def _request(self, start: int, stop: int) -> memoryview:
        if start >= stop:
            return memoryview(b"")
        data = self._store.get_range(self._file.path, start, stop, self._file.etag)
        if len(data) != stop - start:
            raise CorruptChunk(f"it ends at {start + len(data)}, before {stop}", path=self._file.path)
        return data


def _byte_ranges(group: pq.RowGroupMetaData, columns: Sequence[str] | None) -> list[ByteRange]:
    """The column chunks of the columns that are wanted, in the order in which they are in the file."""
    ranges = []
    for number in range(group.num_columns):
        chunk = group.column(number)
        path = chunk.path_in_schema
        if columns is None or any(path == name or path.startswith(f"{name}.") for name in columns):
            start = chunk.data_page_offset
            if chunk.has_dictionary_page:
                start = min(start, chunk.dictionary_page_offset)
            ranges.append((start, start + chunk.total_compressed_size))
    return _merge(sorted(ranges))


def _merge(ranges: Sequence[ByteRange]) -> list[ByteRange]:
    """Joins sorted ranges that are so close that one request for both is better."""
    merged: list[ByteRange] = []
    for start, stop in ranges:
        if merged and start - merged[-1][1] <= MAX_HOLE_BYTES:
            merged[-1] = merged[-1][0], max(stop, merged[-1][1])
        else:
            merged.append((start, stop))
    return merged
