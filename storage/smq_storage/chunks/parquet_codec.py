"""The Parquet codec of chunks.

A chunk is a plain Parquet file. Its ChunkInfo is JSON under the key ``smq`` of the file's
key-value metadata. In DuckDB::

    SELECT decode(value) FROM parquet_kv_metadata('….parquet') WHERE decode(key) = 'smq'

Offsets are not stored: the offset of a row is ``info.first`` + its index.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from smq_core.errors import CorruptChunk, SchemaMismatch
from smq_core.file_lists.key_bounds import MAX_BOUND_BYTES, KeyBound, lower_bound, upper_bound
from smq_core.model.chunk_info import ChunkInfo
from smq_storage.chunks.info_codec import decode_info_json, encode_info
from smq_storage.chunks.schemas import TIMESTAMP, chunk_schema, message_schema

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "KEY",
    "KEY_BOUNDS",
    "TAIL_BYTES",
    "chunk_schema",
    "columns_with_statistics",
    "decode_footer",
    "decode_info",
    "encode_chunk",
    "footer_bytes",
    "info_of",
    "message_schema",
    "page_rows",
    "read_chunk",
    "stamp",
]

KEY = "smq"
# The file's metadata of that name has the bounds of the key column, if its keys are too long for statistics.
KEY_BOUNDS = "smq.key"
TAIL_BYTES = 64 * 1024
# A reader fetches and decodes whole row groups, so this limits what it reads without need, and its memory.
ROW_GROUP_ROWS = 128 * 1024
# About the size of a page of the widest column, before compression.
PAGE_BYTES = 1024 * 1024
_MAGIC = b"PAR1"

# When rows were appended: one time for all, or an array of TIMESTAMP with one for each.
Times: TypeAlias = int | pa.Array

# A chunk has few different values of these, so a dictionary makes them almost free.
_DICTIONARY = ["partition", "appended"]


def encode_chunk(
    batches: Sequence[tuple[pa.RecordBatch, Times]], info: ChunkInfo, schema: pa.Schema, key: str = "key"
) -> pa.Buffer:
    """A whole Parquet file.

    ``batches`` are wire batches, each with the time at which it was appended, in microseconds, or with one time for
    each of its rows; none for a seal chunk or a reference chunk. ``schema`` is the :func:`chunk_schema` of the topic.
    ``key`` names the key column, if there is one. ``info.rows`` is stored without a check. Raises SchemaMismatch.
    """
    table = pa.Table.from_batches([stamp(batch, appended, schema) for batch, appended in batches], schema)
    with_statistics, bounds = columns_with_statistics(table, key)
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        schema,
        # Half the bytes of lz4 for half as much CPU again. The store and the readers save twice that CPU.
        compression="zstd",
        compression_level=1,
        use_dictionary=_DICTIONARY,
        write_statistics=with_statistics,
        write_page_index=True,
        max_rows_per_page=page_rows(table),
    ) as writer:
        if table.num_rows:
            writer.write_table(table, row_group_size=ROW_GROUP_ROWS)
        writer.add_key_value_metadata({KEY: encode_info(info).decode()})
        if bounds is not None:
            writer.add_key_value_metadata({KEY_BOUNDS: json.dumps(bounds)})
    return sink.getvalue()


def page_rows(table: pa.Table) -> int:
    """The most rows of a page in any column: as many as the widest column has in a page.

    With the page index, a reader that wants some values of one column skips the pages of all others that do not have
    them. Pages of a narrow column would have many times as many rows otherwise, and hardly any could be skipped.
    """
    widest = max((column.nbytes for column in table.columns), default=0)
    return max(1, min(ROW_GROUP_ROWS, PAGE_BYTES * int(table.num_rows) // max(1, int(widest))))


def columns_with_statistics(table: pa.Table, key: str | None) -> tuple[list[str], tuple[KeyBound, KeyBound] | None]:
    """The columns of which a file's footer gets statistics, and the bounds of keys that are too long for them.

    Bounds of long values would enlarge the footer, which is read often.
    """
    found = [field.name for field in table.schema if _is_fixed_width(field.type)]
    if key is None or key not in table.schema.names or not _is_text_or_binary(table.schema.field(key).type):
        return found, None
    bounds = _bounds_of_long_keys(table.column(key))
    return (found, bounds) if bounds is not None else ([*found, key], None)


def stamp(batch: pa.RecordBatch, appended: Times, schema: pa.Schema) -> pa.RecordBatch:
    """A wire batch with its ``appended`` column, under the chunk schema; no other copy. Raises SchemaMismatch."""
    columns = list(batch.columns)
    one = isinstance(appended, int)
    times = pa.repeat(pa.scalar(appended, TIMESTAMP), batch.num_rows) if one else appended
    columns.insert(2, times)
    try:
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    except (pa.ArrowInvalid, pa.ArrowTypeError, ValueError, TypeError) as error:
        raise SchemaMismatch(f"the batch does not fit the topic's columns: {error}", expected=str(schema)) from None


def footer_bytes(tail: Buffer) -> int:
    """How many bytes of the file's end are needed to decode its info, given its last 8 bytes or more."""
    end = bytes(memoryview(tail)[-8:])
    if len(end) < 8 or end[4:] != _MAGIC:
        raise CorruptChunk("this is not a Parquet file")
    return int.from_bytes(end[:4], "little") + 8


def decode_info(tail: Buffer) -> ChunkInfo:
    """The info of a chunk from the whole file or from its last :func:`footer_bytes` or more. Raises CorruptChunk."""
    return info_of(decode_footer(tail))


def decode_footer(tail: Buffer) -> pq.FileMetaData:
    """The footer of a file, from the whole file or its last :func:`footer_bytes` or more. Raises CorruptChunk."""
    need = footer_bytes(tail)
    view = memoryview(tail)
    if len(view) < need:
        raise CorruptChunk(f"the footer has {need} bytes, only {len(view)} are here")
    try:
        return pq.read_metadata(pa.BufferReader(pa.py_buffer(view)))
    except (pa.ArrowException, OSError) as error:
        raise CorruptChunk(f"the Parquet footer cannot be read: {error}") from None


def read_chunk(data: Buffer, columns: Sequence[str] | None = None) -> tuple[ChunkInfo, pa.Table]:
    """Info and rows of a whole chunk; ``columns`` chooses some. Raises CorruptChunk."""
    try:
        file = pq.ParquetFile(pa.BufferReader(pa.py_buffer(data)))
        info = info_of(file.metadata)
        return info, file.read(columns=list(columns) if columns is not None else None)
    except (pa.ArrowException, OSError) as error:
        raise CorruptChunk(f"the chunk cannot be read: {error}") from None


def info_of(metadata: pq.FileMetaData) -> ChunkInfo:
    """The info in a chunk's footer. Raises CorruptChunk."""
    text = (metadata.metadata or {}).get(KEY.encode())
    if text is None:
        raise CorruptChunk(f"a Parquet file without the metadata {KEY!r}")
    try:
        return decode_info_json(text)
    except ValueError as error:
        raise CorruptChunk(f"the metadata {KEY!r} is damaged: {error}") from None


def _bounds_of_long_keys(keys: pa.ChunkedArray) -> tuple[KeyBound, KeyBound] | None:
    """Short bounds of string or binary keys; None if all keys are so short that statistics may have them in full."""
    if max(map(_longest, keys.chunks), default=0) <= MAX_BOUND_BYTES:
        return None
    # Imported here because it takes 9 MB, which a broker without long keys saves.
    import pyarrow.compute as pc

    bounds = pc.min_max(keys).as_py()
    return lower_bound(bounds["min"]), upper_bound(bounds["max"])


def _longest(values: pa.Array) -> int:
    """The length of the longest value in bytes."""
    _, offsets, _ = values.buffers()
    if offsets is None or not len(values):
        return 0
    ends = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    return int(np.diff(ends).max())


def _is_text_or_binary(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_binary(type_))


def _is_fixed_width(type_: pa.DataType) -> bool:
    return bool(pa.types.is_primitive(type_) or pa.types.is_decimal(type_))
