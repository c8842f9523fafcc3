"""How large row groups of a Parquet file become in memory, as the file's footer says."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow.parquet as pq

# The bytes of a value of these physical types.
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8}

# Arrow keeps an offset for each text or binary value, also for a null, of which Parquet stores next to nothing.
_OFFSET_BYTES = 4

# The encodings that store each text or binary value, and the levels. Others store what several values share once.
_STORED_IN_FULL = {"PLAIN", "RLE", "BIT_PACKED", "DELTA_LENGTH_BYTE_ARRAY"}


def decoded_bytes(footer: pq.FileMetaData, group: int, columns: Iterable[int]) -> int:
    """What these columns of a row group take in memory. Values that share bytes in the file count as if they did not
    repeat: nobody knows how often they do."""
    return sum(_decoded_bytes(footer, group, column) for column in columns)


def max_decoded_bytes(footer: pq.FileMetaData, group: int) -> int:
    """The most that a row group may take in memory, also if all text and binary values are the longest one."""
    return sum(_max_decoded_bytes(footer, group, column) for column in range(footer.num_columns))


def _decoded_bytes(footer: pq.FileMetaData, group: int, column: int) -> int:
    chunk = footer.row_group(group).column(column)
    width = _width(footer, column)
    stored: int = chunk.total_uncompressed_size
    values: int = chunk.num_values
    return stored + _OFFSET_BYTES * values if width is None else max(stored, width * values)


def _max_decoded_bytes(footer: pq.FileMetaData, group: int, column: int) -> int:
    chunk = footer.row_group(group).column(column)
    if _width(footer, column) is None and not _STORED_IN_FULL.issuperset(chunk.encodings):
        return int(chunk.total_uncompressed_size * chunk.num_values)
    return _decoded_bytes(footer, group, column)


def _width(footer: pq.FileMetaData, column: int) -> int | None:
    """The bytes of a value of the column; None if they differ from value to value."""
    described = footer.schema.column(column)
    if described.physical_type == "FIXED_LEN_BYTE_ARRAY":
        return int(described.length)
    return _WIDTHS.get(described.physical_type)
