"""Arrow arrays of a few values, made from their buffers.

``pyarrow.array`` and casts take 5 to 20 us a call, whatever the number of values. A small batch has five columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from smq_storage.chunks.schemas import HEADERS

FEW = 64
"""Up to so many values buffers made in Python are faster."""

_BINARY = pa.binary()


def array_of(values: npt.NDArray[np.int32] | npt.NDArray[np.int64], type_: pa.DataType) -> pa.Array:
    """An array without nulls of a type that has the width of the values. Copies nothing. Shape (rows,)."""
    return pa.Array.from_buffers(type_, len(values), [None, pa.py_buffer(values)])


def binary_array(values: Sequence[bytes | None]) -> pa.Array:
    """The same as ``pa.array(values, pa.binary())``."""
    if len(values) > FEW or None in values:
        return pa.array(values, _BINARY)
    offsets = np.array([0, *accumulate(map(len, values))], np.int32)  # type: ignore[arg-type]
    data = values[0] if len(values) == 1 else b"".join(values)  # type: ignore[arg-type]
    return pa.Array.from_buffers(_BINARY, len(values), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def no_headers(rows: int) -> pa.Array:
    """The headers of messages without any."""
    return _few_nulls(rows) if rows <= FEW else pa.nulls(rows, HEADERS)


@lru_cache(FEW)
def _few_nulls(rows: int) -> pa.Array:
    return pa.nulls(rows, HEADERS)
