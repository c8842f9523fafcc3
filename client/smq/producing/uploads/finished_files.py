"""Files that are uploads already: written by ``Client.write_upload``, and published by copying their bytes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from smq.producing.encoding.batch_encoder import BatchEncoder
from smq.producing.encoding.frames import TableLike
from smq.producing.encoding.keys import KeylessPartitioner
from smq.producing.uploads.upload_encoder import EncodedUpload, UploadEncoder, split_into_uploads
from smq.producing.uploads.uploaded_rows import PartitionIndex
from smq_core.errors import CorruptChunk, InvalidRequest
from smq_storage.chunks.parquet_codec import ROW_GROUP_ROWS
from smq_storage.uploads.upload_format import MAX_ROW_GROUP_BYTES, PARTITION, is_intact, parse_upload_footer

# A larger file is not copied, because a file is in memory while it is uploaded. A table that is larger is not
# written.
FILE_BYTES = 1 << 30

# The bytes of rows without a key that get the same partition.
KEYLESS_BYTES = 1 << 20

Sink: TypeAlias = "str | os.PathLike[str] | IO[bytes]"


def write_finished_file(encoder: BatchEncoder, table: TableLike, sink: Sink, key: str | None) -> None:
    """As :meth:`smq.Client.write_upload`."""
    checked, key_column = encoder.check(encoder.to_table(table), key)
    if not checked.num_rows or checked.nbytes > FILE_BYTES:
        raise InvalidRequest(
            f"the table has {checked.num_rows} rows with {checked.nbytes} bytes: write 1 row or more, and at most "
            f"{FILE_BYTES} bytes, into one file"
        )
    partitions = encoder.topic.spec.partitions
    keyless = KeylessPartitioner(partitions, int(np.random.default_rng().integers(partitions)))
    (part,) = split_into_uploads(checked, FILE_BYTES)
    encoded = UploadEncoder(encoder=encoder, keyless=keyless, producer="", epoch=0, batch_bytes=KEYLESS_BYTES).encode(
        part, key_column, keep_order=False
    )
    if isinstance(sink, (str, os.PathLike)):
        Path(sink).write_bytes(encoded.data)
    else:
        sink.write(encoded.data)


def may_be_finished(metadata: pq.FileMetaData, encoder: BatchEncoder, key: str | None) -> bool:
    """Whether the footer is that of an upload with this topic's newest columns. The rows may still be out of order."""
    topic = encoder.topic
    if key not in (None, topic.spec.key or (None if encoder.typed else "key")):
        return False  # the partitions in the file may be those of another column
    try:
        parsed = parse_upload_footer(metadata)
    except CorruptChunk:
        return False
    groups = (rows for rows, low, high in parsed.row_groups if low is not None and high is not None)
    return (
        (parsed.footer.topic_uid, parsed.footer.schema_version) == (topic.uid, encoder.version)
        and parsed.schema.equals(encoder.schema)
        and all(rows <= ROW_GROUP_ROWS for rows, *_ in parsed.row_groups)
        and parsed.largest <= MAX_ROW_GROUP_BYTES
        and sum(groups) == metadata.num_rows > 0
    )


def encoded_upload(data: bytes, encoder: BatchEncoder, key: str | None) -> EncodedUpload | None:
    """The file as an upload; None if these bytes are not those of one whose rows are as its footer says.

    Raises ArrowException.
    """
    buffer = pa.py_buffer(data)
    file = pq.ParquetFile(pa.BufferReader(buffer))
    if not may_be_finished(file.metadata, encoder, key) or not is_intact(data, file.metadata):
        return None
    footer = parse_upload_footer(file.metadata).footer
    rows = file.read(columns=[PARTITION, "timestamp"])
    partitions = rows.column(PARTITION).to_numpy()
    ascending = bool((np.diff(partitions) >= 0).all()) and 0 <= partitions[0] <= partitions[-1]
    if not ascending or partitions[-1] >= encoder.topic.spec.partitions:
        return None
    index = PartitionIndex.of(partitions, rows.column("timestamp").cast(pa.int64()).to_numpy())
    if footer.rows != len(partitions) or index.pairs() != footer.partitions:
        return None
    return EncodedUpload(buffer, encoder.version, index, None)
