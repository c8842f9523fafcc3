"""Reads uploads from the filer: what their footers say, and the rows that a reference names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pyarrow.parquet as pq

from smq_core.errors import CorruptChunk, DataLost, InvalidRequest
from smq_core.model.chunk_info import ChunkInfo
from smq_core.model.entities import Micros
from smq_core.model.reference import Reference
from smq_storage.catalog import paths
from smq_storage.chunks.file_errors import name_file_errors
from smq_storage.chunks.parquet_codec import decode_footer
from smq_storage.chunks.parquet_ranges import RangedFile, read_rows, read_tail
from smq_storage.chunks.schemas import TIMESTAMP
from smq_storage.object_store.store import Store
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
    tail = read_tail(store, path)
    return StoredUpload(tail.etag, tail.size, tail.modified, parse_upload(tail.data))


@dataclass(frozen=True, slots=True, kw_only=True)
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
            path=path,
            etag=reference.etag,
            first_row=reference.first_row,
            rows=reference.rows,
            segment=segment,
            first=first,
            appended=appended,
            partitions=partitions,
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
    """Yields the messages ``start .. stop - 1``, some row groups at a time, as ``(first offset, table)``.

    The tables have the columns of a chunk of the upload's schema version, or those of ``columns`` that it has. One GET
    reads the end of the file, and others the wanted columns of each part. Raises DataLost if the file is gone or was
    altered, CorruptChunk if it never had such rows, both with the file's name, and StoreUnavailable.
    """
    start, stop = max(start, referenced.first), min(referenced.end, referenced.end if stop is None else stop)
    to_row = referenced.first_row - referenced.first
    path = referenced.path

    def lost(what: str) -> DataLost:
        return DataLost(
            f"the file {path} {what}: the messages {referenced.first} to {referenced.end - 1} of {referenced.segment} "
            "were in it",
            segment=referenced.segment,
            start=start,
            stop=referenced.end,
            path=path,
        )

    with name_file_errors(store, path, referenced.etag, lambda: lost("is gone"), lambda: lost("was altered")):
        tail = read_tail(store, path, referenced.etag)
        footer = decode_footer(tail.data)
        if footer.num_rows < stop + to_row:
            raise CorruptChunk(f"it has {footer.num_rows} rows, and the log refers to {stop + to_row}")
        # The partitions are checked, whether or not somebody wants them.
        read = None if columns is None else list(dict.fromkeys([*columns, PARTITION]))
        for row, table in read_rows(
            footer, lambda ranges: RangedFile(store, path, tail, ranges), start + to_row, stop + to_row, read
        ):
            _check(table, referenced)
            table = _with_append_time(table, referenced.appended)
            if columns is not None:
                table = table.select([name for name in columns if name in table.column_names])
            yield row - to_row, table


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
    return table.add_column(
        min(2, table.num_columns), pa.field("appended", TIMESTAMP, nullable=False), times
    ).replace_schema_metadata()


def read_upload(store: Store, topic_uid: str, file_name: str) -> pa.Table:
    """The rows of a whole upload as a program wrote them: without their partitions.

    Raises InvalidRequest if there is no such file (any more), CorruptChunk, StoreUnavailable.
    """
    path = paths.uploaded_file(topic_uid, file_name)
    gone = InvalidRequest(f"the upload {path} is gone, so its rows cannot be published: write them again")
    with name_file_errors(store, path, "", lambda: gone):
        data = pa.py_buffer(store.get(path).data)
        return pq.read_table(pa.BufferReader(data)).drop_columns([PARTITION]).replace_schema_metadata()
