"""Columns of pandas whose values are maps.

pandas has no type for them, so such a column has dictionaries or lists of pairs as plain objects. Arrow alone would
take the dictionaries of a column for structs with all keys of all rows, and refuse lists of pairs.

pandas is not imported here, because a program that has such a frame has done so.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from smq_storage.conversion.exact_cast import InexactValue
from smq_storage.conversion.value_conversion import converter


def is_pandas_frame(data: object) -> bool:
    """Whether this is a DataFrame."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(data, pandas.DataFrame)


def map_columns(frame: Any, types: Mapping[str, pa.DataType]) -> dict[str, pa.Array]:
    """The columns of plain objects whose type is a map or has one inside, converted as ``send`` converts values.

    ``types`` are those of the topic's columns. Raises InexactValue with column and row.
    """
    if not frame.columns.is_unique:
        return {}  # such a table is refused anyway
    chosen = [name for name in frame.columns if name in types and _has_map(types[name]) and frame[name].dtype == object]
    return {name: _column(frame[name], name, types[name]) for name in chosen}


def _column(series: Any, name: str, type_: pa.DataType) -> pa.Array:
    convert = converter(type_)
    values: list[object] = []
    for row, value in enumerate(series):
        try:
            values.append(None if _is_null(value) else convert(value))
        except InexactValue as problem:
            raise InexactValue(problem.reason, row, name) from None
    return pa.array(values, type_)


def _is_null(value: object) -> bool:
    """Whether pandas takes the value for a null: None, NaN, NA or NaT."""
    if value is None:
        return True
    if isinstance(value, (Mapping, list, tuple, np.ndarray)):
        return False
    return bool(sys.modules["pandas"].isna(value))


def _has_map(type_: pa.DataType) -> bool:
    if pa.types.is_map(type_):
        return True
    return any(_has_map(type_.field(number).type) for number in range(type_.num_fields))
