"""Uploads for tests: messages by partition, written to a store as a producer does, and references to them."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from smq_core.model.keyspace import KeyRange
from smq_core.model.reference import Reference
from smq_storage.catalog import paths
from smq_storage.object_store.store import Store
from smq_storage.uploads.upload_format import UploadFooter, footer_of, sort_by_partition, write_upload


@dataclass(frozen=True, slots=True)
class WrittenUpload:
    name: str
    etag: str
    size: int
    footer: UploadFooter
    table: pa.Table

    def reference(self, partitions: KeyRange, schema_version: int = 0) -> Reference:
        """A reference to the rows of these partitions."""
        first, rows = self.footer.rows_of(partitions)
        own = [partition for partition, _ in self.footer.partitions if partition in partitions]
        times = self.table.column("timestamp").slice(first, rows).cast(pa.int64()).to_pylist()
        return Reference(
            upload=self.name,
            etag=self.etag,
            first_row=first,
            rows=rows,
            bytes=self.size * rows // self.footer.rows,
            partition_min=min(own),
            partition_max=max(own),
            timestamp_min=min(times),
            timestamp_max=max(times),
            schema_version=schema_version,
        )


def upload_bytes(table: pa.Table, footer: UploadFooter) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    write_upload(sink, table, footer)
    return sink.getvalue()


def write(
    store: Store, uid: str, name: str, messages: pa.Table, footer: UploadFooter | None = None, schema_version: int = 0
) -> WrittenUpload:
    """Sorts the messages and uploads them. ``footer`` replaces the true one."""
    table = sort_by_partition(messages)
    true = footer_of(table, uid, schema_version, "p", 1)
    data = upload_bytes(table, footer or true)
    etag = store.put(paths.uploaded_file(uid, name), data)
    return WrittenUpload(name, etag, data.size, true, table)
