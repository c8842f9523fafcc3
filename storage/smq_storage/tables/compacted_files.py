"""The format of a compacted file: a chunk's columns and ``_offset``, sorted by key and offset.

It lies in ``_compacted/<segment>/``, outside of the segment's folder, so that a glob over the chunks does not find its
rows twice. It has all rows of ``first .. end - 1`` of the segment. Its row groups are small, so that the statistics of
the key column lead a reader to the rows of a key.
"""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from smq_core.errors import CorruptChunk
from smq_core.model.partition_offsets import PartitionOffsets
from smq_storage.chunks.parquet_codec import KEY_BOUNDS, columns_with_statistics, page_rows
from smq_storage.object_store.json_codec import to_json

OFFSET = "_offset"
OFFSET_FIELD = pa.field(OFFSET, pa.int64(), nullable=False)
ROW_GROUP_ROWS = 16 * 1024
# The file's metadata of that name has the segment, the first offset and the offset after the last row.
REPLACES = "smq.compacted"
# That of this name has the Kafka offsets after the last row, if the topic has them.
PARTITIONS = "smq.partitions"

_DICTIONARY = ["partition", "appended"]


def encode_compacted(
    rows: pa.Table, segment: str, first: int, key: str | None, partitions: PartitionOffsets | None = None
) -> pa.Buffer:
    """A whole file. ``rows`` are those from ``first`` on, in offset order. ``key`` names the key column, if any.

    ``partitions`` says where the partitions end after these rows, if the topic counts their messages.
    """
    offsets = pa.array(range(first, first + rows.num_rows), pa.int64())
    table = rows.append_column(OFFSET_FIELD, offsets)
    order = [(name, "ascending") for name in (key, OFFSET) if name is not None]
    table = table.take(pc.sort_indices(table, sort_keys=order))
    with_statistics, bounds = columns_with_statistics(table, key)
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        table.schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=_DICTIONARY if key is None else [*_DICTIONARY, key],
        write_statistics=with_statistics,
        write_page_checksum=True,
        write_page_index=True,
        max_rows_per_page=page_rows(table),
    ) as writer:
        writer.write_table(table, row_group_size=ROW_GROUP_ROWS)
        writer.add_key_value_metadata({REPLACES: json.dumps([segment, first, first + rows.num_rows])})
        if partitions is not None:
            writer.add_key_value_metadata({PARTITIONS: to_json(partitions).decode()})
        if bounds is not None:
            writer.add_key_value_metadata({KEY_BOUNDS: json.dumps(bounds)})
    return sink.getvalue()


def in_offset_order(table: pa.Table, start: int, stop: int) -> pa.Table:
    """The rows with the offsets ``start .. stop - 1``, in this order and without ``_offset``, with the file's metadata.

    ``table`` has all rows of the file. Raises CorruptChunk if an offset is missing or there twice.
    """
    offsets = table.column(OFFSET)
    wanted = pc.and_(pc.greater_equal(offsets, start), pc.less(offsets, stop))
    found = table.filter(wanted)
    found = found.take(pc.sort_indices(found, sort_keys=[(OFFSET, "ascending")]))
    if not found.column(OFFSET).combine_chunks().equals(pa.array(range(start, stop), pa.int64())):
        raise CorruptChunk(f"it has not each of the offsets {start} to {stop - 1} once")
    return found.drop_columns([OFFSET])
