"""Reads a run of small files and writes their rows as few large ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa

from smq_core.errors import StoreStateUnknown
from smq_core.file_lists.compaction_plan import FileRun
from smq_core.file_lists.file_list import FileEntry
from smq_storage.catalog import paths
from smq_storage.chunks.parquet_codec import decode_footer
from smq_storage.object_store.store import ObjectExists, Store
from smq_storage.tables.compacted_files import encode_compacted
from smq_storage.tables.file_statistics import entry_of_file
from smq_storage.tables.partition_ends import partition_ends_of
from smq_storage.tables.range_reader import read_file
from smq_storage.tables.segment_files import StoredSegment

WRITE_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class MergeLimits:
    """How much of a machine one merge may take.

    ``readers`` small files are read at the same time, because a request takes longer than its bytes. A merged file has
    about ``decoded_bytes`` at most when it is decoded, because whoever writes or reads it holds all of them.
    """

    readers: int = 8
    decoded_bytes: int = 256 * 1024 * 1024


DEFAULT_LIMITS = MergeLimits()


class MergeInterrupted(Exception):
    """A merge ended early because its caller wanted it to."""


def merge_run(
    store: Store,
    segment: StoredSegment,
    run: FileRun,
    key: str | None,
    new_nonce: Callable[[], str],
    limits: MergeLimits = DEFAULT_LIMITS,
    interrupted: Callable[[], bool] = lambda: False,
) -> list[FileEntry]:
    """Writes the rows of these files again, and returns the entries of the new files, in the order of their offsets.

    ``key`` names the topic's key column; None if it has none. The files count once a file list names them
    (``file_list_switch.py``). Each small file takes one request, and each new file one. ``interrupted`` is called
    before each request. Raises DataLost if a file is gone, CorruptChunk, StoreUnavailable, MergeInterrupted.
    """
    merged = []
    for files, rows in _parts(_tables(store, segment, run.files, limits.readers, interrupted), limits.decoded_bytes):
        # The rows have the metadata of the last file.
        partitions = partition_ends_of(rows.schema.metadata or {})
        large_values = tuple(name for file in files for name in file.large_values)
        data = encode_compacted(rows.replace_schema_metadata(), segment.name, files[0].first, key, partitions)
        del rows  # while the next part is read
        _check(interrupted)
        path, etag = _write(store, segment, files[0].first, data, new_nonce)
        stored = path, data.size, etag
        merged.append(
            entry_of_file(decode_footer(data), stored, files[0].first, key, files[0].schema_version, large_values)
        )
    return merged


def _parts(
    tables: Iterator[tuple[FileEntry, pa.Table]], decoded_bytes: int
) -> Iterator[tuple[list[FileEntry], pa.Table]]:
    """The run's rows in parts of limited size, each with the files that it is from, and the last one's metadata."""
    files: list[FileEntry] = []
    parts: list[pa.Table] = []
    size = 0
    for file, table in tables:
        if files and size + table.nbytes > decoded_bytes:
            yield files, _concatenate(parts)
            files, parts, size = [], [], 0
        files.append(file)
        parts.append(table)
        size += table.nbytes
    yield files, _concatenate(parts)


def _concatenate(parts: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables(parts).replace_schema_metadata(parts[-1].schema.metadata)


def _tables(
    store: Store, segment: StoredSegment, files: Sequence[FileEntry], readers: int, interrupted: Callable[[], bool]
) -> Iterator[tuple[FileEntry, pa.Table]]:
    """The rows of each file. No more than ``readers`` files are read ahead, so that few of them are in memory."""
    ahead: deque[tuple[FileEntry, Future[pa.Table]]] = deque()
    with ThreadPoolExecutor(readers, thread_name_prefix="smq-compact") as threads:
        for file in files:
            _check(interrupted)
            ahead.append((file, threads.submit(_read, store, segment, file)))
            if len(ahead) == readers:
                yield _take(ahead)
        while ahead:
            yield _take(ahead)


def _take(ahead: deque[tuple[FileEntry, Future[pa.Table]]]) -> tuple[FileEntry, pa.Table]:
    """The next file and its rows, of which nothing but the caller has a reference then."""
    file, read = ahead.popleft()
    return file, read.result()


def _check(interrupted: Callable[[], bool]) -> None:
    if interrupted():
        raise MergeInterrupted


def _read(store: Store, segment: StoredSegment, file: FileEntry) -> pa.Table:
    return pa.concat_tables(table for _, table in read_file(store, segment.name, file, file.first, file.end))


def _write(
    store: Store, segment: StoredSegment, first: int, data: pa.Buffer, new_nonce: Callable[[], str]
) -> tuple[str, str]:
    """Path and etag of the new object. An attempt without a clear answer is repeated under another name."""
    failure = StoreStateUnknown("")
    for _ in range(WRITE_ATTEMPTS):
        path = paths.compacted_file(segment.topic, segment.uid, segment.name, first, new_nonce())
        try:
            return path, store.put_new(path, data)
        except StoreStateUnknown as error:
            failure = error
        except ObjectExists:  # a store may answer this to any conflict, and nobody else writes this name
            failure = StoreStateUnknown(f"the store refuses to create {path}, as if it existed", path=path)
    raise failure
