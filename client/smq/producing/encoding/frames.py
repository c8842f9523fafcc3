"""Tables of other libraries: pandas, Polars, DuckDB, and whatever else has the Arrow PyCapsule interface.

None of these libraries is imported here.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from smq.producing.encoding.pandas_maps import is_pandas_frame, map_columns
from smq_core.errors import InvalidRequest

Table: TypeAlias = pa.Table | pa.RecordBatch


class ArrowStream(Protocol):
    """Several batches, such as a frame of pandas or Polars, a relation of DuckDB, or a pyarrow RecordBatchReader."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


class ArrowArray(Protocol):
    """One batch."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> object: ...


TableLike: TypeAlias = Table | ArrowStream | ArrowArray


def is_table_like(value: object) -> bool:
    """Whether a value has the Arrow PyCapsule interface."""
    return hasattr(value, "__arrow_c_stream__") or hasattr(value, "__arrow_c_array__")


def as_table(data: object, types: Mapping[str, pa.DataType] | None = None) -> Table:
    """The rows as a pyarrow table. Copies only what the other library must convert.

    The levels of the index of a pandas frame that have names are columns; others are left out. ``types`` are those of
    the topic's columns, without which a pandas frame has no maps. Raises InvalidRequest, InexactValue.
    """
    if isinstance(data, (pa.Table, pa.RecordBatch)):
        return data
    if not is_table_like(data):
        lazy = ": call its collect() first" if hasattr(data, "collect") else ""
        raise InvalidRequest(
            f"a table must be a pyarrow Table, a frame of pandas or Polars, or another object with the Arrow PyCapsule "
            f"interface, not {type(data).__name__}{lazy}"
        )
    _refuse_objects(data)
    try:
        table = _pandas_table(data, types or {}) if is_pandas_frame(data) else pa.table(data)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidRequest(f"the {type(data).__name__} cannot become an Arrow table: {_first_line(error)}") from None
    return table.replace_schema_metadata()


def _refuse_objects(data: object) -> None:
    """Of a column of Python objects, Polars hands over their addresses in memory as bytes."""
    polars = sys.modules.get("polars")
    if polars is None or not isinstance(data, polars.DataFrame):
        return
    names = [name for name, type_ in data.schema.items() if type_ == polars.Object]
    if names:
        raise InvalidRequest(
            f"the DataFrame has Python objects in the column {', '.join(names)}, which Polars cannot hand over: give "
            "the column a type of its own"
        )


def _pandas_table(frame: Any, types: Mapping[str, pa.DataType]) -> pa.Table:
    frame = _with_named_index(frame)
    maps = map_columns(frame, types)
    if not maps:
        return pa.Table.from_pandas(frame, preserve_index=False)
    # Nulls in their places, so that the table keeps the frame's order, and its rows if it has no other column.
    table = pa.Table.from_pandas(frame.assign(**dict.fromkeys(maps)), preserve_index=False)
    for name, column in maps.items():
        table = table.set_column(table.schema.get_field_index(name), name, column)
    return table


def _with_named_index(frame: Any) -> Any:
    """The frame with the named levels of its index as last columns. Arrow drops ranges, and renames other levels."""
    names = [name for name in frame.index.names if name is not None]
    if not names:
        return frame
    taken = [name for name in names if name in frame.columns]
    if taken or len(set(names)) < len(names):
        which = ", ".join(map(repr, taken or names))
        raise InvalidRequest(
            f"the index of the frame is named {which}, as another column is: rename one of them, or drop the index by "
            "frame.reset_index(drop=True)"
        )
    made = frame.copy(deep=False)
    for name in names:
        made[name] = frame.index.get_level_values(name)
    return made


def _first_line(error: Exception) -> str:
    # Of a frame of pandas, Arrow says in two parts what does not fit and in which column.
    text = "; ".join(str(part) for part in error.args)
    return (text.splitlines() or [type(error).__name__])[0]
