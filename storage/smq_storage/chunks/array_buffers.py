"""Arrow arrays of numbers from and to numpy and ``array``, without a copy and without pandas.

The first ``pyarrow.array`` or ``to_numpy`` of a process imports pandas if it is installed. All threads of the program
wait for that for up to half a second, also those that send or read messages.
"""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def array_of(values: npt.NDArray[np.int32] | npt.NDArray[np.int64] | array[int], type_: pa.DataType) -> pa.Array:
    """An array without nulls of a type that has the width of the values. Shape (rows,)."""
    return pa.Array.from_buffers(type_, len(values), [None, pa.py_buffer(values)])


def numbers_of(column: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any]:
    """The numbers of a column without nulls, in the column's width. It cannot be written to. Shape (rows,)."""
    return np.from_dlpack(column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column)
