"""Reads some rows and columns of a Parquet file in the store, and requests only the bytes that hold them."""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from smq_core.errors import CorruptChunk
from smq_storage.chunks.decoded_sizes import decoded_bytes
from smq_storage.chunks.parquet_codec import TAIL_BYTES, footer_bytes
from smq_storage.object_store.store import EtagMismatch, ObjectTail, Store

# Row groups are requested and decoded together while they have at most that many bytes.
PART_BYTES = 8 * 1024 * 1024

# The same, for their bytes in memory: a few requested bytes may become many. A larger row group is decoded in parts.
DECODED_BYTES = 4 * PART_BYTES

# A row group that is decoded in parts is requested in such pieces of each column, if it has more bytes in the file.
STREAMED_BYTES = 1024 * 1024

# How many bytes that are not wanted are requested too, where that saves a request.
MAX_HOLE_BYTES = 64 * 1024

ByteRange = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroups:
    """Neighbouring row groups with the file's rows ``first .. end - 1``, and the ranges of bytes of their columns.

    ``decoded`` is what they take in memory, in bytes.
    """

    numbers: list[int]
    first: int
    end: int
    ranges: list[ByteRange]
    decoded: int = 0


def read_tail(store: Store, path: str, etag: str | None = None) -> ObjectTail:
    """The end of a Parquet file with its whole footer, by one request or two.

    Raises CorruptChunk if it is not Parquet, ObjectMissing, EtagMismatch if it has another etag, StoreUnavailable.
    """
    tail = store.get_tail(path, TAIL_BYTES)
    if etag in (None, tail.etag):
        need = footer_bytes(tail.data)
        if len(tail.data) < need <= tail.size:
            tail = store.get_tail(path, need)
    if etag not in (None, tail.etag):
        raise EtagMismatch(path)
    return tail


def read_rows(
    footer: pq.FileMetaData,
    open_file: Callable[[Sequence[ByteRange]], Any],
    start: int,
    stop: int,
    columns: Sequence[str] | None,
) -> Iterator[tuple[int, pa.Table]]:
    """The file's rows ``start .. stop - 1`` as tables, each with its first row.

    ``columns`` are in the order that the tables have; a name that the file does not have is left out. ``open_file``
    opens the file for reads of these ranges.
    """
    for part in select_row_groups(footer, start, stop, columns):
        first = part.first
        for table in _decode(footer, open_file, part, columns):
            end = first + table.num_rows
            if end > start:
                if columns is not None:
                    table = table.select([name for name in columns if name in table.column_names])
                begin = max(start, first)
                yield begin, table.slice(begin - first, min(stop, end) - begin)
            first = end
            if end >= stop:
                return


def _decode(
    footer: pq.FileMetaData,
    open_file: Callable[[Sequence[ByteRange]], Any],
    part: RowGroups,
    columns: Sequence[str] | None,
) -> Iterator[pa.Table]:
    """The rows of these row groups, about ``DECODED_BYTES`` at a time."""
    names = list(columns) if columns is not None else None
    rows = part.end - part.first
    at_once = max(1, rows * DECODED_BYTES // max(part.decoded, 1))
    if at_once >= rows:
        parquet = pq.ParquetFile(open_file(part.ranges), metadata=footer, pre_buffer=False)
        yield parquet.read_row_groups(part.numbers, columns=names)
        return
    is_small = sum(end - start for start, end in part.ranges) <= PART_BYTES
    parquet = pq.ParquetFile(
        open_file(part.ranges if is_small else []), metadata=footer, pre_buffer=False, buffer_size=STREAMED_BYTES
    )
    for batch in parquet.iter_batches(at_once, part.numbers, names):
        yield pa.Table.from_batches([batch])


def select_row_groups(
    footer: pq.FileMetaData, start: int, stop: int, columns: Sequence[str] | None
) -> Iterator[RowGroups]:
    """The row groups with any of the rows ``start .. stop - 1``, in parts.

    Each part has at most ``PART_BYTES`` of the columns, and ``DECODED_BYTES`` in memory, or one row group.
    """
    part, size, end = RowGroups(numbers=[], first=0, end=0, ranges=[]), 0, 0
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        first, end = end, end + group.num_rows
        if end <= start or first >= stop:
            continue
        ranges = _byte_ranges(group, columns)
        group_size = sum(stop - start for start, stop in ranges)
        decoded = decoded_bytes(footer, number, _wanted_columns(group, columns))
        if part.numbers and (size + group_size > PART_BYTES or part.decoded + decoded > DECODED_BYTES):
            yield part
            part, size = RowGroups(numbers=[], first=first, end=first, ranges=[]), 0
        begin = part.first if part.numbers else first
        part = RowGroups(
            numbers=[*part.numbers, number],
            first=begin,
            end=end,
            ranges=_merge([*part.ranges, *ranges]),
            decoded=part.decoded + decoded,
        )
        size += group_size
    if part.numbers:
        yield part


class RangedFile(io.RawIOBase):
    """A read-only file of which the given ranges are requested now, and everything else when it is read.

    Nothing that ``tail`` has is requested again. Raises ObjectMissing, EtagMismatch if the file is not the one that
    ``tail`` is from, CorruptChunk if it ends too early, and StoreUnavailable.
    """

    def __init__(self, store: Store, path: str, tail: ObjectTail, ranges: Sequence[ByteRange]) -> None:
        super().__init__()
        self._store = store
        self._path = path
        self._etag = tail.etag
        self._size = tail.size
        self._at = 0
        tail_start = tail.size - len(tail.data)
        requested = [(start, stop) for start, stop in ranges if start < tail_start]
        self._starts = [*(start for start, _ in requested), tail_start]
        self._parts = [*(self._request(start, stop) for start, stop in requested), tail.data]

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = base + offset
        return self._at

    def read(self, size: int = -1) -> memoryview:  # a view, so that Arrow copies nothing
        start = self._at
        stop = self._size if size < 0 else min(start + size, self._size)
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
        data = self._store.get_range(self._path, start, stop, self._etag)
        if len(data) != stop - start:
            raise CorruptChunk(f"it ends at {start + len(data)}, before {stop}", path=self._path)
        return data


def _byte_ranges(group: pq.RowGroupMetaData, columns: Sequence[str] | None) -> list[ByteRange]:
    """The column chunks of the columns that are wanted, in the order in which they are in the file."""
    ranges = []
    for number in _wanted_columns(group, columns):
        chunk = group.column(number)
        start = chunk.data_page_offset
        if chunk.has_dictionary_page:
            start = min(start, chunk.dictionary_page_offset)
        ranges.append((start, start + chunk.total_compressed_size))
    return _merge(sorted(ranges))


def _wanted_columns(group: pq.RowGroupMetaData, columns: Sequence[str] | None) -> Iterator[int]:
    for number in range(group.num_columns):
        path = group.column(number).path_in_schema
        if columns is None or any(path == name or path.startswith(f"{name}.") for name in columns):
            yield number


def _merge(ranges: Sequence[ByteRange]) -> list[ByteRange]:
    """Joins sorted ranges that are so close that one request for both is better."""
    merged: list[ByteRange] = []
    for start, stop in ranges:
        if merged and start - merged[-1][1] <= MAX_HOLE_BYTES:
            merged[-1] = merged[-1][0], max(stop, merged[-1][1])
        else:
            merged.append((start, stop))
    return merged
