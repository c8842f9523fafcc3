"""Reads of a range of a segment's messages from the store alone, without leader or broker.

Both functions are generators that read when the caller wants the next table. They start no thread. A caller with time
to wait may run them in one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from smq_core.errors import CorruptChunk, SmqError
from smq_core.file_lists.file_list import FileEntry
from smq_storage.catalog import paths
from smq_storage.chunks.file_errors import altered_file, name_file_errors
from smq_storage.chunks.parquet_codec import decode_footer, info_of
from smq_storage.chunks.parquet_ranges import ByteRange, RangedFile, read_rows, read_tail
from smq_storage.object_store.absence import confirm_missing
from smq_storage.object_store.store import EtagMismatch, ObjectMissing, Store
from smq_storage.tables.compacted_files import OFFSET, in_offset_order
from smq_storage.tables.segment_files import StoredSegment, files_between, lost_file
from smq_storage.uploads.uploaded_files import ReferencedRows, read_referenced_rows

# A file up to this size is read by one request, whatever part of it is wanted.
SMALL_FILE_BYTES = 1024 * 1024

# A file up to this size is read by one request if all of it is wanted. A larger one is read in parts.
WHOLE_FILE_BYTES = 64 * 1024 * 1024


def read_range(
    store: Store, segment: StoredSegment, start: int, stop: int, columns: Sequence[str] | None = None
) -> Iterator[tuple[int, pa.Table]]:
    """The messages ``start .. stop - 1`` as tables, each with its first offset, in order and without a gap.

    Fewer if the segment ends before ``stop``. Of a large file it requests only the row groups and columns that are
    wanted. ``columns`` are names of the chunk schema, in the order that the tables have; a name that a file does not
    have is left out of its tables. Raises DataLost and CorruptChunk with the name of a file that is gone, altered or
    damaged, CorruptDocument for a damaged file list, and StoreUnavailable.
    """
    for file in files_between(store, segment, start, stop):
        yield from read_file(store, segment.name, file, start, stop, columns)


def read_file(
    store: Store, segment: str, file: FileEntry, start: int, stop: int, columns: Sequence[str] | None = None
) -> Iterator[tuple[int, pa.Table]]:
    """The messages ``start .. stop - 1`` that are in this file of the segment. Otherwise as :func:`read_range`."""
    start, stop = max(start, file.first), min(stop, file.end)
    if start >= stop:
        return
    if paths.is_upload(file.path):
        yield from read_referenced_rows(store, _referenced_rows(segment, file), start, stop, columns)
        return

    def lost() -> SmqError:
        return lost_file(file.path, segment, start, stop)

    with name_file_errors(store, file.path, file.etag, lost, lambda: _altered(store, file, lost())):
        if paths.is_compacted(file.path):
            yield start, _read_compacted(store, file, start, stop, columns)
            return
        everything = columns is None and (start, stop) == (file.first, file.end)
        whole = file.bytes <= SMALL_FILE_BYTES or (everything and file.bytes <= WHOLE_FILE_BYTES)
        footer, open_file = _read_whole(store, file) if whole else _read_end(store, file)
        if footer.num_rows != file.rows:
            raise CorruptChunk(f"it has {footer.num_rows} rows, not {file.rows}", path=file.path)
        for row, table in read_rows(footer, open_file, start - file.first, stop - file.first, columns):
            yield file.first + row, table


def _read_compacted(store: Store, file: FileEntry, start: int, stop: int, columns: Sequence[str] | None) -> pa.Table:
    """The messages ``start .. stop - 1`` of a compacted file. They may be anywhere in it, so all of it is read."""
    wanted = None if columns is None else [*columns, OFFSET]
    small = file.bytes <= SMALL_FILE_BYTES or (columns is None and file.bytes <= WHOLE_FILE_BYTES)
    footer, open_file = _read_whole(store, file) if small else _read_end(store, file)
    if footer.num_rows != file.rows:
        raise CorruptChunk(f"it has {footer.num_rows} rows, not {file.rows}", path=file.path)
    parts = [table for _, table in read_rows(footer, open_file, 0, file.rows, wanted)]
    return in_offset_order(pa.concat_tables(parts), start, stop)


def _altered(store: Store, file: FileEntry, lost: SmqError) -> SmqError:
    """The error for a file with another etag: it was altered, or it is a compacted chunk by now, so its rows are gone.

    Raises StoreUnavailable.
    """
    try:
        if info_of(decode_footer(read_tail(store, file.path).data)).compacted is not None:
            return lost
    except ObjectMissing:
        confirm_missing(store, file.path)
        return lost
    except CorruptChunk:
        pass
    return altered_file(file.path, file.etag)


# A file's footer, and what opens it for reads of some ranges.
OpenedFile: TypeAlias = tuple[pq.FileMetaData, Callable[[Sequence[ByteRange]], Any]]


def _read_whole(store: Store, file: FileEntry) -> OpenedFile:
    found = store.get(file.path)
    if found.etag != file.etag:
        raise EtagMismatch(file.path)
    data = pa.py_buffer(found.data)
    return pq.read_metadata(pa.BufferReader(data)), lambda _: pa.BufferReader(data)


def _read_end(store: Store, file: FileEntry) -> OpenedFile:
    tail = read_tail(store, file.path, file.etag)
    return decode_footer(tail.data), lambda ranges: RangedFile(store, file.path, tail, ranges)


def _referenced_rows(segment: str, file: FileEntry) -> ReferencedRows:
    return ReferencedRows(
        path=file.path,
        etag=file.etag,
        first_row=file.first_row,
        rows=file.rows,
        segment=segment,
        first=file.first,
        appended=file.appended_min or 0,
    )
