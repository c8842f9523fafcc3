"""Reads uploads from the filer: what their footers say, and the rows that a reference names."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from smq_core.errors import CorruptChunk, DataLost, InvalidRequest
from smq_core.model.entities import ChunkInfo, Micros
from smq_core.model.reference import Reference
from smq_storage.catalog import paths
from smq_storage.chunks.parquet_codec import TAIL_BYTES, footer_bytes
from smq_storage.chunks.schemas import TIMESTAMP
from smq_storage.object_store.store import EtagMismatch, ObjectMissing, ObjectTail, Store
from smq_storage.uploads.upload_format import PARTITION, ParsedUpload, parse_upload


@dataclass(frozen=True, slots=True)
class StoredUpload:
    """An upload as the store has it, with its parsed footer. ``size`` is in bytes, ``modified`` the store's time."""

    etag: str
    size: int
    modified: datetime
    parsed: ParsedUpload


def read_upload_footer(store: Store, path: str) -> StoredUpload:
    """Reads the end of the file only. Raises ObjectMissing, CorruptChunk if it is not an upload, StoreUnavailable."""
    tail = _read_tail(store, path)
    return StoredUpload(tail.etag, tail.size, tail.modified, parse_upload(tail.data))


@dataclass(frozen=True, slots=True)
class ReferencedRows:
    """Rows of an upload as messages of a segment, at the offsets ``first .. first + rows - 1``.

    They begin at row ``first_row`` of the file, and all were appended at ``appended``. ``partitions`` are the lowest
    and the highest one that they were published with, if that is known.
    """

    path: str
    etag: str
    first_row: int
    rows: int
    segment: str
    first: int
    appended: Micros
    partitions: tuple[int, int] | None = None

    @property
    def end(self) -> int:
        return self.first + self.rows

    @staticmethod
    def of(topic_uid: str, segment: str, first: int, reference: Reference, appended: Micros) -> ReferencedRows:
        """The rows of a log entry. Raises CorruptChunk if its upload has no valid name."""
        try:
            path = paths.uploaded_file(topic_uid, reference.upload)
        except InvalidRequest as error:
            raise CorruptChunk(f"{segment} refers to an upload at offset {first}: {error.message}") from None
        partitions = reference.partition_min, reference.partition_max
        return ReferencedRows(
            path, reference.etag, reference.first_row, reference.rows, segment, first, appended, partitions
        )

    @staticmethod
    def of_chunk(topic_uid: str, info: ChunkInfo) -> ReferencedRows | None:
        """The rows of a reference chunk; None for a chunk that has its rows itself."""
        if info.reference is None:
            return None
        return ReferencedRows.of(topic_uid, info.segment, info.first, info.reference, info.appended or 0)


def read_referenced_rows(
    store: Store,
    referenced: ReferencedRows,
    start: int = 0,
    stop: int | None = None,
    columns: Sequence[str] | None = None,
) -> Iterator[tuple[int, pa.Table]]:
    """Yields the messages ``start .. stop - 1``, one row group at a time, as ``(first offset, table)``.

    The tables have the columns of a chunk of the upload's schema version, or those of ``columns`` that it has. One GET
    reads the end of the file, and one more each row group. Raises DataLost if the file is gone, CorruptChunk if it was
    altered or is damaged, both with the file's name, and StoreUnavailable.
    """
    start, stop = max(start, referenced.first), min(referenced.end, referenced.end if stop is None else stop)
    to_row = referenced.first_row - referenced.first
    try:
        file = _RangedFile(store, referenced.path, referenced.etag)
        parquet = pq.ParquetFile(file)
        at = 0
        for number in range(parquet.metadata.num_row_groups):
            group = parquet.metadata.row_group(number)
            low, high = max(start + to_row, at), min(stop + to_row, at + group.num_rows)
            if low < high:
                file.load(*_span(group))
                table = parquet.read_row_group(number).slice(low - at, high - low)
                _check(table, referenced)
                table = _with_append_time(table, referenced.appended)
                if columns is not None:
                    table = table.select([name for name in columns if name in table.column_names])
                yield low - to_row, table
            at += group.num_rows
    except ObjectMissing:
        raise DataLost(
            f"the file {referenced.path} is gone, with the messages {referenced.first} to {referenced.end - 1} of "
            f"{referenced.segment}",
            segment=referenced.segment,
            start=start,
            stop=referenced.end,
        ) from None
    except EtagMismatch:
        raise _corrupt(referenced, f"it was altered, because its etag is not {referenced.etag} any more") from None
    except CorruptChunk as error:
        raise _corrupt(referenced, error.message) from None
    except (pa.ArrowException, OSError) as error:
        raise _corrupt(referenced, f"it cannot be read: {error}") from None
    if at < stop + to_row:
        raise _corrupt(referenced, f"it has {at} rows, and the log refers to {stop + to_row}")


def _corrupt(referenced: ReferencedRows, what: str) -> CorruptChunk:
    return CorruptChunk(f"the file {referenced.path} cannot be used: {what}", path=referenced.path)


def _check(table: pa.Table, referenced: ReferencedRows) -> None:
    """What a broker does not check, because it reads no rows."""
    if referenced.partitions is not None:
        import pyarrow.compute as pc  # as in upload_format.footer_of

        lowest, highest = referenced.partitions
        found = pc.min_max(table.column(PARTITION)).as_py()
        if found["min"] < lowest or found["max"] > highest:
            raise CorruptChunk(
                f"rows with partitions {found['min']} to {found['max']} were published as {lowest} to {highest}"
            )
    for field in table.schema:
        if not field.nullable and (nulls := table.column(field.name).null_count):
            raise CorruptChunk(f"column {field.name!r} has {nulls} nulls, but is not nullable")


def _with_append_time(table: pa.Table, appended: Micros) -> pa.Table:
    times = pa.repeat(pa.scalar(appended, TIMESTAMP), table.num_rows)
    return table.add_column(2, pa.field("appended", TIMESTAMP, nullable=False), times).replace_schema_metadata()


def _span(group: pq.RowGroupMetaData) -> tuple[int, int]:
    """Where the row group's bytes are: all its columns."""
    columns = [group.column(number) for number in range(group.num_columns)]
    starts = [min(c.data_page_offset, c.dictionary_page_offset or c.data_page_offset) for c in columns]
    return min(starts), max(start + c.total_compressed_size for start, c in zip(starts, columns, strict=True))


def _read_tail(store: Store, path: str) -> ObjectTail:
    tail = store.get_tail(path, TAIL_BYTES)
    need = footer_bytes(tail.data)
    return store.get_tail(path, need) if len(tail.data) < need <= tail.size else tail


class _RangedFile(io.RawIOBase):
    """An object of the store as a file, whose bytes are read in ranges. Raises EtagMismatch if it was replaced."""

    def __init__(self, store: Store, path: str, etag: str) -> None:
        super().__init__()
        self._store = store
        self._path = path
        self._etag = etag
        tail = _read_tail(store, path)
        if tail.etag != etag:
            raise EtagMismatch(path)
        self._size = tail.size
        self._parts: list[tuple[int, memoryview]] = [(tail.size - len(tail.data), tail.data)]
        self._at = 0

    def load(self, start: int, stop: int) -> None:
        """Reads this range with one request, unless the file's end has it. It replaces the range before."""
        tail_start = self._parts[0][0]
        del self._parts[1:]
        if start < tail_start:
            data = self._store.get_range(self._path, start, min(stop, tail_start), self._etag)
            self._parts.append((start, data))

    def read(self, size: int = -1) -> bytes:
        stop = self._size if size < 0 else min(self._size, self._at + size)
        found = b"".join(self._bytes(self._at, stop))
        self._at += len(found)
        return found

    def _bytes(self, start: int, stop: int) -> Iterator[bytes | memoryview]:
        while start < stop:
            part = next((p for p in self._parts if p[0] <= start < p[0] + len(p[1])), None)
            if part is None:
                yield self._store.get_range(self._path, start, stop, self._etag)
                return
            found = part[1][start - part[0] : stop - part[0]]
            yield found
            start += len(found)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = base + offset
        return self._at

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)
