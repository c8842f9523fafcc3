"""Keys as bytes, and the partitions that they hash to.

The partition of a key is ``xxh3_64(bytes) % partitions``. A key column's values have canonical bytes, so that every
client finds the same partition for a value:

=====================================  ===========================================================================
type                                   bytes
=====================================  ===========================================================================
binary, string (large ones too)        as they are (strings in UTF-8)
bool, integers, date32                 the value as int64, 8 bytes, little-endian (uint64: its 64 bits)
timestamps                             microseconds since 1970 as int64, 8 bytes, little-endian
floats                                 as float64, 8 bytes, little-endian (IEEE 754)
all others                             the value as text, as Arrow casts it to string, in UTF-8
=====================================  ===========================================================================
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from smq_core.errors import InvalidRequest
from smq_core.model.keyspace import FEW_KEYS, Ring
from smq_storage.conversion.exact_cast import decoded

# The partition of each row: int32 of shape (rows,), in an ``array`` if the rows are few.
RowPartitions: TypeAlias = "npt.NDArray[np.int32] | array[int]"


def canonical_bytes(column: pa.Array) -> pa.Array:
    """The canonical bytes of a column's values, as binary; nulls stay null. Raises InvalidRequest for other types."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return canonical_bytes(decoded(column))
    if pa.types.is_binary(kind):
        return column
    if pa.types.is_string(kind):
        return column.cast(pa.binary())
    if pa.types.is_large_string(kind):
        return column.cast(pa.large_binary()).cast(pa.binary())
    if pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind) or pa.types.is_binary_view(kind):
        return column.cast(pa.binary())
    if pa.types.is_null(kind):
        return pa.nulls(len(column), pa.binary())
    if pa.types.is_floating(kind):
        return _int64_bytes(column.cast(pa.float64()))
    if pa.types.is_timestamp(kind):
        micros = column.cast(pa.timestamp("us", tz=kind.tz), safe=False)
        return _int64_bytes(micros.cast(pa.int64()))
    if pa.types.is_date32(kind):
        return _int64_bytes(column.cast(pa.int32()).cast(pa.int64()))
    if pa.types.is_uint64(kind):
        return _int64_bytes(column)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return _int64_bytes(column.cast(pa.int64()))
    try:
        return column.cast(pa.string()).cast(pa.binary())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise InvalidRequest(
            f"a column of type {kind} cannot be a key. Use a binary, text, number or time column"
        ) from None


def _int64_bytes(column: pa.Array) -> pa.Array:
    valid = column.is_valid() if column.null_count else None
    if valid is not None:
        column = column.fill_null(0)
    data = column.to_numpy(zero_copy_only=False)
    ordered = np.ascontiguousarray(data, data.dtype.newbyteorder("<"))
    offsets = np.arange(len(ordered) + 1, dtype=np.int32) * 8
    keys = pa.Array.from_buffers(
        pa.binary(), len(ordered), [None, pa.py_buffer(offsets), pa.py_buffer(ordered.view(np.uint8))]
    )
    return keys if valid is None else pc.if_else(valid, keys, pa.scalar(None, pa.binary()))


def partitions(keys: pa.Array | None, rows: int, ring: Ring, keyless: int) -> npt.NDArray[np.int32]:
    """The partition of each row from its key's canonical bytes. Rows without a key get ``keyless``.

    Returns int32 of shape (rows,).
    """
    if keys is None or keys.null_count == rows:
        return np.full(rows, keyless, np.int32)
    if not keys.null_count:
        return ring.partitions_of(keys.to_pylist())
    chosen = ring.partitions_of(keys.fill_null(b"").to_pylist())
    chosen[keys.is_null().to_numpy(zero_copy_only=False)] = keyless
    return chosen


def key_bytes(
    values: Sequence[object], type_: pa.DataType, make_column: Callable[[Sequence[object]], pa.Array]
) -> list[bytes | None]:
    """The canonical bytes of the values of a column of that type. ``make_column`` makes an array of such values; text
    and bytes do without, because Arrow would make an object of each value anew."""
    if pa.types.is_string(type_):
        return [None if value is None else value.encode() for value in values]  # type: ignore[attr-defined]
    if pa.types.is_binary(type_):
        return list(values)  # type: ignore[arg-type]
    found: list[bytes | None] = canonical_bytes(make_column(values)).to_pylist()
    return found


def partitions_of_keys(
    keys: Sequence[bytes | None], rows: int, ring: Ring, keyless: KeylessPartitioner
) -> RowPartitions:
    """The partition of each row from its key; ``keys`` are those of all rows, or none.

    Rows without a key get the next partition of ``keyless``.
    """
    without = keys.count(None) if keys else rows
    if rows <= FEW_KEYS:
        other = keyless.next() if without else 0
        return array("i", [other if key is None else ring.partition_of(key) for key in keys or repeat(None, rows)])
    if not without:
        return ring.partitions_of(keys)  # type: ignore[arg-type]
    found = np.full(rows, keyless.next(), np.int32)
    if without < rows:
        keyed = [row for row, key in enumerate(keys) if key is not None]
        found[keyed] = ring.partitions_of([keys[row] for row in keyed])  # type: ignore[misc]
    return found


class KeylessPartitioner:
    """Picks partitions for batches without keys, in steps of about the golden ratio, which spreads successive picks."""

    def __init__(self, count: int, start: int) -> None:
        self._count = count
        self._position = start % count
        step = max(1, round(count * 0.618))
        while np.gcd(step, count) != 1:
            step += 1
        self._step = step

    def next(self) -> int:
        self._position = (self._position + self._step) % self._count
        return self._position
