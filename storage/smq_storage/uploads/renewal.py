"""Writes an upload again, under another name: for a newer version of the schema, or because it is too old."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from smq_core.errors import CorruptChunk, StoreStateUnknown, Unavailable
from smq_core.model.atomic_publish import AtomicFile
from smq_core.model.entities import TopicSchema
from smq_storage.catalog import paths
from smq_storage.chunks.file_errors import name_file_errors
from smq_storage.chunks.parquet_codec import ROW_GROUP_ROWS, decode_footer
from smq_storage.chunks.parquet_ranges import RangedFile, read_tail
from smq_storage.chunks.reshaping import reshape
from smq_storage.chunks.schemas import message_schema
from smq_storage.object_store.store import ObjectExists, ObjectTail, Store
from smq_storage.uploads.upload_format import parse_upload, write_upload_batches

# Of one column, and of one request.
READ_BYTES = 1 << 20
# About the bytes of rows that are decoded at a time, and are a row group of the copy.
BATCH_BYTES = 16 << 20


def renew_upload(store: Store, topic_uid: str, file: AtomicFile, schemas: Sequence[TopicSchema]) -> AtomicFile:
    """Writes the rows with the columns of the newest of ``schemas``, and returns the file.

    The rows keep their places, so a range of rows is the same one in both files. Values of columns that were dropped
    meanwhile are left out. The copy is made in a temporary file on disk, so memory holds a few row groups at most.

    Raises CorruptChunk if the file is gone, was altered or cannot be read, Unavailable if the disk cannot hold the
    copy, and StoreUnavailable.
    """
    path = paths.uploaded_file(topic_uid, file.upload)
    newest = schemas[-1]
    schema = message_schema(newest.columns)
    with name_file_errors(store, path, file.etag, lambda: CorruptChunk(f"the file {path} is gone", path=path)):
        tail = read_tail(store, path, file.etag)
        footer = replace(parse_upload(tail.data).footer, schema_version=newest.version)
    name = f"{file.upload.removesuffix('.parquet')[:120]}-{uuid.uuid4().hex}.parquet"
    with _temporary_file() as copy:
        batches = _read_batches(store, path, file.etag, tail, schema)
        try:
            write_upload_batches(copy, schema, batches, footer)
            copy.flush()
            data = pa.memory_map(copy.name).read_buffer()
        except OSError as error:
            raise _disk_error(error) from None
        try:
            etag = store.put_new(paths.uploaded_file(topic_uid, name), data)
        except ObjectExists as error:
            raise StoreStateUnknown(f"the store reports a conflict for a new file: {error}", path=name) from None
        return replace(file, upload=name, etag=etag, bytes=data.size, schema_version=newest.version)


def _read_batches(store: Store, path: str, etag: str, tail: ObjectTail, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The file's rows, reshaped, some at a time: a row group of another program may have all rows of the file."""
    with name_file_errors(store, path, etag, lambda: CorruptChunk(f"the file {path} is gone", path=path)):
        footer = decode_footer(tail.data)
        opened = RangedFile(store, path, tail, [])
        parquet = pq.ParquetFile(opened, metadata=footer, pre_buffer=False, buffer_size=READ_BYTES)
        for batch in parquet.iter_batches(_rows_at_a_time(footer), use_threads=False):
            try:
                shaped = reshape(batch.replace_schema_metadata(), schema)
            except ValueError as error:
                raise CorruptChunk(f"its rows have no place in the topic's columns: {error}", path=path) from None
            yield shaped


def _rows_at_a_time(footer: pq.FileMetaData) -> int:
    """So that no row group's rows have many more bytes than ``BATCH_BYTES`` on average."""
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    widest = max((it.total_byte_size / it.num_rows for it in groups if it.num_rows), default=1.0)
    return max(1, min(int(BATCH_BYTES / max(widest, 1.0)), ROW_GROUP_ROWS))


def _temporary_file() -> Any:
    try:
        return tempfile.NamedTemporaryFile(prefix="smq-upload-")
    except OSError as error:
        raise _disk_error(error) from None


def _disk_error(error: OSError) -> Unavailable:
    return Unavailable(
        f"a copy of an upload cannot be written to {tempfile.gettempdir()} on the leader's disk: {error}. It needs as "
        "much space there as the upload has bytes"
    )
