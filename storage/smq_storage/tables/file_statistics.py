"""From the footer of a Parquet file to its entry in a file list.

Whoever writes a chunk has its footer in memory, and whoever walks the chain reads it anyway. So both get the same
entry.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow.parquet as pq

from smq_core.errors import CorruptChunk
from smq_core.file_lists.file_list import FileEntry
from smq_core.file_lists.key_bounds import KeyBound, lower_bound, upper_bound
from smq_core.model.chunk_info import ChunkInfo
from smq_core.model.common_fields import fields_of
from smq_core.model.compacted_rows import StoredRows
from smq_core.model.reference import Reference
from smq_storage.catalog import paths
from smq_storage.chunks.chain import StoredChunk
from smq_storage.chunks.parquet_codec import KEY_BOUNDS
from smq_storage.uploads.uploaded_files import ReferencedRows


def file_entry(chunk: StoredChunk, key: str | None) -> FileEntry:
    """The entry of a chunk with rows. ``key`` names the key column; None if the topic has none.

    That of a reference chunk names the upload, and that of a compacted chunk the compacted file. Raises CorruptChunk if
    the chunk has no rows, or its file another number of rows than its info.
    """
    footer, info = chunk.footer, chunk.info
    if info.rows <= 0:
        raise CorruptChunk(f"{chunk.path} has no rows, but does not seal the segment", path=chunk.path)
    if info.reference is not None:
        return _referenced_file(chunk, info.reference)
    if (compacted := compacted_file(chunk.path, info)) is not None:
        return compacted
    if footer.num_rows != info.rows:
        raise CorruptChunk(
            f"{chunk.path} has {footer.num_rows} rows, but its metadata says {info.rows}", path=chunk.path
        )
    stored = chunk.path, chunk.bytes, chunk.etag
    return entry_of_file(footer, stored, info.first, key, info.schema_version, info.large_values)


def compacted_file(path: str, info: ChunkInfo) -> FileEntry | None:
    """The entry of the file with the rows of a compacted chunk at this path, or None if the chunk is another one."""
    rows = info.compacted
    if rows is None:
        return None
    return FileEntry(
        path=paths.compacted_file_of_chunk(path, rows.name),
        first=info.first,
        rows=info.rows,
        schema_version=info.schema_version,
        large_values=info.large_values,
        **fields_of(StoredRows, rows),
    )


def entry_of_file(
    footer: pq.FileMetaData,
    stored: tuple[str, int, str],
    first: int,
    key: str | None,
    schema_version: int,
    large_values: tuple[str, ...],
) -> FileEntry:
    """The entry of a file whose rows are those from the offset ``first`` on. ``stored``: its path, bytes and etag."""
    path, size, etag = stored
    timestamp_min, timestamp_max = _bounds(footer, "timestamp")
    appended_min, appended_max = _bounds(footer, "appended")
    key_min, key_max = _key_bounds(footer, key or "key")
    return FileEntry(
        path=path,
        first=first,
        rows=footer.num_rows,
        bytes=size,
        etag=etag,
        timestamp_min=timestamp_min,
        timestamp_max=timestamp_max,
        appended_min=appended_min,
        appended_max=appended_max,
        key_min=key_min,
        key_max=key_max,
        schema_version=schema_version,
        large_values=large_values,
    )


def _referenced_file(chunk: StoredChunk, reference: Reference) -> FileEntry:
    """The entry of a reference chunk, from the chunk alone. Its keys are unknown."""
    info = chunk.info
    referenced = ReferencedRows.of_chunk(paths.topic_uid_of_chunk(chunk.path), info)
    assert referenced is not None
    return FileEntry(
        path=referenced.path,
        first=info.first,
        rows=info.rows,
        bytes=reference.bytes,
        etag=reference.etag,
        timestamp_min=reference.timestamp_min,
        timestamp_max=reference.timestamp_max,
        appended_min=referenced.appended,
        appended_max=referenced.appended,
        schema_version=reference.schema_version,
        first_row=reference.first_row,
    )


def _key_bounds(footer: pq.FileMetaData, key: str) -> tuple[KeyBound, KeyBound]:
    stored = (footer.metadata or {}).get(KEY_BOUNDS.encode())
    if stored is not None:
        smallest, largest = json.loads(stored)
        return smallest, largest
    smallest, largest = _bounds(footer, key)
    return lower_bound(smallest), upper_bound(largest)


def _bounds(footer: pq.FileMetaData, column: str) -> tuple[Any, Any]:
    """The column's smallest and largest value, (None, None) if they are unknown or all values are null."""
    bounds: list[tuple[Any, ...]] = []
    for known in _bounds_of_row_groups(footer, column):
        if known is None:
            return None, None
        if known:
            bounds.append(known)
    return (min(it[0] for it in bounds), max(it[1] for it in bounds)) if bounds else (None, None)


def _bounds_of_row_groups(footer: pq.FileMetaData, column: str) -> Iterator[tuple[Any, ...] | None]:
    """For each row group: (smallest, largest), () if it has only nulls, None if unknown."""
    names = [footer.schema.column(number).path for number in range(footer.num_columns)]
    if column not in names:
        return
    number = names.index(column)
    for group in range(footer.num_row_groups):
        chunk = footer.row_group(group).column(number)
        statistics = chunk.statistics
        if statistics is None:
            yield None
        elif statistics.has_null_count and statistics.null_count == chunk.num_values:
            yield ()
        elif not statistics.has_min_max:
            yield None
        else:
            yield _bounds_of(statistics)


def _bounds_of(statistics: pq.Statistics) -> tuple[int | str | bytes, int | str | bytes] | None:
    kind = statistics.logical_type.type
    if kind in ("TIMESTAMP", "DATE"):
        return statistics.min_raw, statistics.max_raw  # the conversion to datetime is slow and not needed
    if kind in ("INT", "STRING") or (kind == "NONE" and statistics.physical_type in ("INT32", "INT64", "BYTE_ARRAY")):
        return statistics.min, statistics.max
    return None
