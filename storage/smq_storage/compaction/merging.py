"""Reads a run of small files and writes their rows as few large ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from smq_core.errors import StoreStateUnknown
from smq_core.manifests.compaction_plan import FileRun
from smq_core.manifests.segment_manifest import ManifestFile
from smq_storage.catalog import paths
from smq_storage.chunks.parquet_codec import decode_footer
from smq_storage.object_store.store import Store
from smq_storage.tables.compacted_files import encode_compacted
from smq_storage.tables.file_statistics import entry_of_file
from smq_storage.tables.range_reader import read_file
from smq_storage.tables.segment_files import StoredSegment

READERS = 8
"""Small files are read at the same time, because a request takes longer than its bytes."""

MAX_DECODED_BYTES = 256 * 1024 * 1024
"""A merged file has about as many bytes at most when it is decoded, because whoever reads it holds all of them."""

WRITE_ATTEMPTS = 5


def merge_run(
    store: Store, segment: StoredSegment, run: FileRun, key: str | None, new_nonce: Callable[[], str]
) -> list[ManifestFile]:
    """Writes the rows of these files again, and returns the entries of the new files, in the order of their offsets.

    ``key`` names the topic's key column; None if it has none. The files count once a manifest names them
    (``manifest_switch.py``). Each small file takes one request, and each new file one. Raises DataLost if a file is
    gone, CorruptChunk, StoreUnavailable.
    """
    merged = []
    for files, rows in _parts(store, segment, run):
        large_values = tuple(name for file in files for name in file.large_values)
        data = encode_compacted(rows, segment.name, files[0].first, key or "key")
        path, etag = _write(store, segment, files[0].first, data, new_nonce)
        stored = path, data.size, etag
        merged.append(
            entry_of_file(decode_footer(data), stored, files[0].first, key, files[0].schema_version, large_values)
        )
    return merged


def _parts(store: Store, segment: StoredSegment, run: FileRun) -> Iterator[tuple[list[ManifestFile], pa.Table]]:
    """The run's rows in parts of limited size, each with the files that it is from."""
    files: list[ManifestFile] = []
    tables: list[pa.Table] = []
    size = 0
    with ThreadPoolExecutor(READERS, thread_name_prefix="smq-compact") as readers:
        for file, table in zip(run.files, readers.map(lambda it: _read(store, segment, it), run.files), strict=True):
            if files and size + table.nbytes > MAX_DECODED_BYTES:
                yield files, pa.concat_tables(tables)
                files, tables, size = [], [], 0
            files.append(file)
            tables.append(table)
            size += table.nbytes
    yield files, pa.concat_tables(tables)


def _read(store: Store, segment: StoredSegment, file: ManifestFile) -> pa.Table:
    tables = [table for _, table in read_file(store, segment.name, file, file.first, file.end)]
    return pa.concat_tables(tables).replace_schema_metadata()


def _write(
    store: Store, segment: StoredSegment, first: int, data: pa.Buffer, new_nonce: Callable[[], str]
) -> tuple[str, str]:
    """Path and etag of the new object. An attempt without an answer is repeated under another name."""
    for attempt in range(WRITE_ATTEMPTS):
        path = paths.compacted_file(segment.topic, segment.uid, segment.name, first, new_nonce())
        try:
            return path, store.put_new(path, data)
        except StoreStateUnknown:
            if attempt == WRITE_ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")
