"""The messages of one partition in one file: how many there are, and some of them.

A chunk and a compacted file are decoded whole. A row group of an upload is decoded alone, because uploads are sorted by
partition and may be large, and because their footers have the number of messages of each partition.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate

import numpy as np
import pyarrow as pa

from smq_core.errors import CorruptChunk
from smq_core.file_lists.file_list import FileEntry
from smq_core.model.entities import Micros
from smq_core.model.keyspace import KeyRange
from smq_storage.catalog import paths
from smq_storage.chunks.array_buffers import numbers_of
from smq_storage.chunks.file_errors import altered_file, name_file_errors
from smq_storage.object_store.store import Store
from smq_storage.partitions.byte_cache import ByteCache
from smq_storage.partitions.split_rows import SplitRows
from smq_storage.tables.range_reader import SMALL_FILE_BYTES, read_file
from smq_storage.tables.segment_files import lost_file
from smq_storage.uploads.upload_format import PARTITION, ParsedUpload
from smq_storage.uploads.uploaded_files import read_upload_footer

# About what an entry takes in memory.
_COUNT_BYTES = 150


class FileRows:
    """Reads files of segments. What was decoded is kept in ``decoded_bytes``, and what is known of files in
    ``known_bytes``. Safe from many threads.

    ``segment`` is the name of the file's segment everywhere. Each call raises DataLost if the file is gone,
    CorruptChunk and StoreUnavailable.
    """

    def __init__(self, store: Store, decoded_bytes: int, known_bytes: int) -> None:
        self._store = store
        self._decoded: ByteCache[SplitRows] = ByteCache(decoded_bytes, lambda rows: rows.bytes)
        self._counts: ByteCache[dict[int, int]] = ByteCache(known_bytes, lambda it: _COUNT_BYTES * (len(it) + 1))
        self._uploads: ByteCache[ParsedUpload] = ByteCache(
            known_bytes, lambda it: _COUNT_BYTES * (len(it.footer.partitions) + len(it.row_groups) + 1)
        )

    def count(self, segment: str, file: FileEntry, partition: int) -> int:
        """How many messages of the partition the file has."""
        if paths.is_upload(file.path):
            first, stop = self._rows_of_upload(segment, file, partition)
            return stop - first
        key = _key(segment, file, file.first)
        decoded = self._decoded.get(key)
        if decoded is None and file.bytes <= SMALL_FILE_BYTES:  # one request reads all of it anyway
            decoded = self._decode(segment, file, file.first, file.end)
        counts = decoded.counts if decoded else self._counts.get_or_load(key, lambda: self._read_counts(segment, file))
        return counts.get(partition, 0)

    def rows(self, segment: str, file: FileEntry, partition: int, index: int, max_bytes: int) -> tuple[pa.Table, int]:
        """The messages of the partition from the ``index``-th in the file on, of about ``max_bytes``.

        At least one if there is one, and fewer than there are where a part of the file ends that is decoded alone. Also
        how many of these bytes are left then, and 0 if the part has more.
        """
        if not paths.is_upload(file.path):
            return self._decode(segment, file, file.first, file.end).rows(partition, index, max_bytes)
        first, stop = self._rows_of_upload(segment, file, partition)
        start, end = self._row_group(segment, file, first + index)
        rows = self._decode(segment, file, file.first + start - file.first_row, file.first + end - file.first_row)
        if rows.counts.get(partition, 0) != min(stop, end) - max(first, start):
            raise CorruptChunk(
                f"the file {file.path} has not the messages of partition {partition} that its footer says",
                path=file.path,
            )
        return rows.rows(partition, first + index - max(first, start), max_bytes)

    def first_since(self, segment: str, file: FileEntry, partition: int, since: Micros) -> tuple[int, Micros] | None:
        """The index of the first message of the partition with this timestamp or a later one, and its timestamp."""
        index = 0
        start, stop = file.first, file.end
        if paths.is_upload(file.path):
            first, end = self._rows_of_upload(segment, file, partition)
            start, stop = file.first + first - file.first_row, file.first + end - file.first_row
        for table in self._read(segment, file, start, stop, [PARTITION, "timestamp"]):
            own = numbers_of(table.column("timestamp").cast(pa.int64()))[
                numbers_of(table.column(PARTITION)) == partition
            ]
            late = np.flatnonzero(own >= since)
            if len(late):
                return index + int(late[0]), int(own[late[0]])
            index += len(own)
        return None

    def _decode(self, segment: str, file: FileEntry, start: int, stop: int) -> SplitRows:
        return self._decoded.get_or_load(
            _key(segment, file, start),
            lambda: SplitRows(pa.concat_tables(self._read(segment, file, start, stop, None))),
        )

    def _read_counts(self, segment: str, file: FileEntry) -> dict[int, int]:
        partitions = np.concatenate(
            [numbers_of(it.column(PARTITION)) for it in self._read(segment, file, file.first, file.end, [PARTITION])]
        )
        found, counts = np.unique(partitions, return_counts=True)
        return dict(zip(found.tolist(), counts.tolist(), strict=True))

    def _read(
        self, segment: str, file: FileEntry, start: int, stop: int, columns: list[str] | None
    ) -> Iterator[pa.Table]:
        return (
            table.replace_schema_metadata() for _, table in read_file(self._store, segment, file, start, stop, columns)
        )

    def _rows_of_upload(self, segment: str, file: FileEntry, partition: int) -> tuple[int, int]:
        """The rows of the partition in the upload that are messages of the segment: the first one, and one past it."""
        first, rows = self._upload(segment, file).footer.rows_of(KeyRange(partition, partition + 1))
        start = max(first, file.first_row)
        return start, max(start, min(first + rows, file.first_row + file.rows))

    def _row_group(self, segment: str, file: FileEntry, row: int) -> tuple[int, int]:
        """The rows of the row group with this row that are messages of the segment."""
        ends = list(accumulate(rows for rows, *_ in self._upload(segment, file).row_groups))
        number = bisect_right(ends, row)
        if number == len(ends):
            raise CorruptChunk(f"the file {file.path} has no row {row}", path=file.path)
        start = ends[number - 1] if number else 0
        return max(start, file.first_row), min(ends[number], file.first_row + file.rows)

    def _upload(self, segment: str, file: FileEntry) -> ParsedUpload:
        def load() -> ParsedUpload:
            lost = lost_file(file.path, segment, file.first, file.end)
            with name_file_errors(self._store, file.path, file.etag, lambda: lost):
                found = read_upload_footer(self._store, file.path)
            if found.etag != file.etag:
                raise altered_file(file.path, file.etag)
            return found.parsed

        return self._uploads.get_or_load((file.path, file.etag), load)


def _key(segment: str, file: FileEntry, start: int) -> tuple[str, str, int, int]:
    return segment, file.path, file.first, start
