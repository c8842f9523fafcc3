"""Writes an upload again, under another name: for a newer version of the schema, or because it is too old."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq

from smq_core.errors import CorruptChunk
from smq_core.model.atomic_publish import AtomicFile
from smq_core.model.entities import TopicSchema
from smq_storage.catalog import paths
from smq_storage.chunks.reshaping import reshape
from smq_storage.chunks.schemas import message_schema
from smq_storage.object_store.store import ObjectMissing, Store
from smq_storage.uploads.upload_format import parse_upload, write_upload


def renew_upload(store: Store, topic_uid: str, file: AtomicFile, schemas: Sequence[TopicSchema]) -> AtomicFile:
    """Writes the rows with the columns of the newest of ``schemas``, and returns the file.

    The rows keep their places, so a range of rows is the same one in both files. Values of columns that were dropped
    meanwhile are left out. Reads the whole file into memory. Raises CorruptChunk if it is gone or was altered, and
    StoreUnavailable.
    """
    path = paths.uploaded_file(topic_uid, file.upload)
    try:
        found = store.get(path)
    except ObjectMissing:
        raise CorruptChunk(f"the file {path} is gone", path=path) from None
    if found.etag != file.etag:
        raise CorruptChunk(f"the file {path} was altered, because its etag is not {file.etag} any more", path=path)
    footer = parse_upload(found.data).footer
    table = pq.read_table(pa.BufferReader(pa.py_buffer(found.data))).replace_schema_metadata()
    newest = schemas[-1]
    table = reshape(table, message_schema(newest.columns))
    sink = pa.BufferOutputStream()
    write_upload(sink, table, replace(footer, schema_version=newest.version))
    data = sink.getvalue()
    name = f"{file.upload.removesuffix('.parquet')[:120]}-{uuid.uuid4().hex}.parquet"
    etag = store.put_new(paths.uploaded_file(topic_uid, name), data)
    return replace(file, upload=name, etag=etag, bytes=data.size, schema_version=newest.version)
