"""Arrow arrays of a batch's columns, made from their buffers, as in ``smq_storage.chunks.array_buffers``.

``pyarrow.array`` and casts take 5 to 20 us a call, whatever the number of values. A small batch has five columns.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from smq_storage.chunks.array_buffers import array_of
from smq_storage.chunks.schemas import HEADERS, TIMESTAMP

# For up to this number of messages, columns that are always the same are kept, and numpy is not used. A call takes
# about 1 us, and several times as much in a program that sends seldom and finds none of its code in the caches.
FEW = 64

_BINARY = pa.binary()
_MAX_BYTES = (1 << 31) - 1


def binary_array(values: Sequence[bytes | None]) -> pa.Array:
    """The same as ``pa.array(values, pa.binary())``."""
    rows = len(values)
    validity = None
    if None in values:
        validity = pa.py_buffer(np.packbits([value is not None for value in values], bitorder="little"))
        values = [value or b"" for value in values]
    data = values[0] if rows == 1 else b"".join(values)  # type: ignore[arg-type]
    if len(data) > _MAX_BYTES:  # type: ignore[arg-type]
        raise OverflowError(f"{len(data)} bytes are too many for one column of a batch")  # type: ignore[arg-type]
    offsets: array[int] | npt.NDArray[np.int32]
    if rows <= FEW:
        offsets = array("i", accumulate(map(len, values), initial=0))  # type: ignore[arg-type]
    else:
        offsets = np.zeros(rows + 1, np.int32)
        np.cumsum(np.fromiter(map(len, values), np.int32, rows), out=offsets[1:])  # type: ignore[arg-type]
    return pa.Array.from_buffers(_BINARY, rows, [validity, pa.py_buffer(offsets), pa.py_buffer(data)])


def timestamps_of(times: Sequence[int], given: Mapping[int, int]) -> array[int] | npt.NDArray[np.int64]:
    """The timestamps, in microseconds since 1970, of messages that were sent at ``times``, in nanoseconds.

    ``given`` are those that the program has given, in microseconds since 1970, by row.
    """
    micros: array[int] | npt.NDArray[np.int64]
    if len(times) <= FEW:
        micros = array("q", [time // 1000 for time in times])
    else:
        micros = np.array(times, np.int64) // 1000
    for row, timestamp in given.items():
        micros[row] = timestamp
    return micros


def time_array(times: Sequence[int], given: Mapping[int, int]) -> pa.Array:
    """The same as an Arrow array."""
    return array_of(timestamps_of(times, given), TIMESTAMP)


def no_headers(rows: int) -> pa.Array:
    """The headers of messages without any."""
    return _few_nulls(rows) if rows <= FEW else pa.nulls(rows, HEADERS)


@lru_cache(FEW)
def _few_nulls(rows: int) -> pa.Array:
    return pa.nulls(rows, HEADERS)
