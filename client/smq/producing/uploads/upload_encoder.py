"""Encodes checked tables as uploads: rows get their partitions, are sorted by them, and become one Parquet file."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from smq.producing.encoding.batch_encoder import BatchEncoder, Table, split_rows
from smq.producing.encoding.keys import KeylessPartitioner
from smq.producing.uploads.uploaded_rows import PartitionIndex
from smq_storage.uploads.upload_format import UploadFooter, sort_order, write_upload

# About how many bytes of rows, before compression, become one file. Larger files make fewer references, which is what
# brokers work for; smaller ones need less memory here, and let encoding and uploading overlap.
UPLOAD_BYTES = 128 << 20


@dataclass(frozen=True, slots=True, eq=False)
class EncodedUpload:
    """The content of an upload.

    Row ``i`` of it was row ``order[i]`` of the table, uint32 of shape (rows,); None if nobody needs that.
    """

    data: pa.Buffer
    schema_version: int
    index: PartitionIndex
    order: npt.NDArray[np.uint32] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadEncoder:
    """Encodes for one producer. Rows without a key get another partition after each ``batch_bytes``."""

    encoder: BatchEncoder
    keyless: KeylessPartitioner
    producer: str
    epoch: int
    batch_bytes: int

    def encode(self, part: pa.Table, key_column: str | None, keep_order: bool = True) -> EncodedUpload:
        """``part`` is a part of a checked table, with at least one row. ``keep_order``: the result has the order."""
        now = time.time_ns() // 1000
        batches, found = [], []
        for small in split_rows(part, self.batch_bytes):
            batch, row_partitions = self.encoder.encode(small, key_column, now, self.keyless)
            batches.append(batch)
            found.append(row_partitions)
        partitions = np.concatenate(found)
        order = sort_order(partitions)
        table = pa.Table.from_batches(batches).combine_chunks().take(pa.array(order))
        times = table.column("timestamp").cast(pa.int64()).to_numpy()
        index = PartitionIndex.of(partitions[order], times)
        footer = UploadFooter(
            topic_uid=self.encoder.topic.uid,
            schema_version=self.encoder.version,
            producer=self.producer,
            epoch=self.epoch,
            rows=table.num_rows,
            partitions=index.pairs(),
        )
        sink = pa.BufferOutputStream()
        write_upload(sink, table, footer)
        kept = order.astype(np.uint32) if keep_order else None
        return EncodedUpload(sink.getvalue(), self.encoder.version, index, kept)


def split_into_uploads(table: Table, upload_bytes: int) -> Iterator[pa.Table]:
    """The table in parts of about ``upload_bytes``, all of about the same size. Copies nothing."""
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    rows = table.num_rows
    if not rows:
        return
    per_upload = -(-rows // min(rows, -(-table.nbytes // upload_bytes) or 1))
    for at in range(0, rows, per_upload):
        yield table.slice(at, per_upload)
