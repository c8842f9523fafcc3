"""Reads of a range of a segment's messages from the store alone, without leader or broker.

Both functions are generators that read when the caller wants the next table. They start no thread. A caller with time
to wait may run them in one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from smq_core.errors import CorruptChunk
from smq_core.model.segment_manifest import ManifestFile
from smq_storage.catalog import paths
from smq_storage.object_store.store import EtagMismatch, ObjectMissing, Store
from smq_storage.tables.parquet_ranges import RangedFile, RowGroups, read_footer, select_row_groups
from smq_storage.tables.segment_files import StoredSegment, files_between, lost_file
from smq_storage.uploads.uploaded_files import ReferencedRows, read_referenced_rows

SMALL_FILE_BYTES = 1024 * 1024
"""A file up to this size is read by one request, whatever part of it is wanted."""

WHOLE_FILE_BYTES = 64 * 1024 * 1024
"""A file up to this size is read by one request if all of it is wanted. A larger one is read in parts."""


def read_range(
    store: Store, segment: StoredSegment, start: int, stop: int, columns: Sequence[str] | None = None
) -> Iterator[tuple[int, pa.Table]]:
    """The messages ``start .. stop - 1`` as tables, each with its first offset, in order and without a gap.

    Fewer if the segment ends before ``stop``. Of a large file it requests only the row groups and columns that are
    wanted. ``columns`` are names of the chunk schema, in the order that the tables have; a name that a file does not
    have is left out of its tables. Raises DataLost and CorruptChunk with the name of a file that is gone, altered or
    damaged, CorruptDocument for a damaged manifest, and StoreUnavailable.
    """
    for file in files_between(store, segment, start, stop):
        yield from read_file(store, segment.name, file, start, stop, columns)


def read_file(
    store: Store, segment: str, file: ManifestFile, start: int, stop: int, columns: Sequence[str] | None = None
) -> Iterator[tuple[int, pa.Table]]:
    """The messages ``start .. stop - 1`` that are in this file of the segment. Otherwise as :func:`read_range`."""
    start, stop = max(start, file.first), min(stop, file.end)
    if start >= stop:
        return
    if paths.is_upload(file.path):
        yield from read_referenced_rows(store, _referenced_rows(segment, file), start, stop, columns)
        return
    try:
        everything = columns is None and (start, stop) == (file.first, file.end)
        if file.bytes <= SMALL_FILE_BYTES or (everything and file.bytes <= WHOLE_FILE_BYTES):
            found = store.get(file.path)
            if found.etag != file.etag:
                raise EtagMismatch(file.path)
            parts = _read_whole(found.data, file, start, stop, columns)
        else:
            parts = _read_parts(store, file, start, stop, columns)
        yield from parts
    except ObjectMissing:
        raise lost_file(file.path, segment, start, stop) from None
    except EtagMismatch:
        raise _corrupt(file, f"it was altered, because its etag is not {file.etag} any more") from None
    except CorruptChunk as error:
        raise _corrupt(file, error.message) from None
    except (pa.ArrowException, OSError) as error:
        raise _corrupt(file, f"it cannot be read: {error}") from None


def _read_whole(
    data: memoryview, file: ManifestFile, start: int, stop: int, columns: Sequence[str] | None
) -> Iterator[tuple[int, pa.Table]]:
    parquet = pq.ParquetFile(pa.BufferReader(pa.py_buffer(data)))
    for part in select_row_groups(parquet.metadata, file, start, stop, columns):
        yield _decode(parquet, part, start, stop, columns)


def _read_parts(
    store: Store, file: ManifestFile, start: int, stop: int, columns: Sequence[str] | None
) -> Iterator[tuple[int, pa.Table]]:
    footer = read_footer(store, file)
    for part in select_row_groups(footer, file, start, stop, columns):
        ranged = RangedFile(store, file, part.ranges)
        yield _decode(pq.ParquetFile(ranged, metadata=footer, pre_buffer=False), part, start, stop, columns)


def _decode(
    parquet: pq.ParquetFile, part: RowGroups, start: int, stop: int, columns: Sequence[str] | None
) -> tuple[int, pa.Table]:
    table = parquet.read_row_groups(part.numbers, columns=list(columns) if columns is not None else None)
    if columns is not None:
        table = table.select([name for name in columns if name in table.column_names])
    first = max(start, part.first)
    return first, table.slice(first - part.first, min(stop, part.end) - first)


def _referenced_rows(segment: str, file: ManifestFile) -> ReferencedRows:
    return ReferencedRows(file.path, file.etag, file.first_row, file.rows, segment, file.first, file.appended_min or 0)


def _corrupt(file: ManifestFile, what: str) -> CorruptChunk:
    return CorruptChunk(f"the file {file.path} cannot be used: {what}", path=file.path)
