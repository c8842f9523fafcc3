"""Batches of a Parquet file with the times that it has.

Old writers (Spark, Hive, Impala) store times as INT96: nanoseconds of all years. Arrow reads these as nanoseconds in
64 bits, which wrap outside of the years 1677 to 2262, or as microseconds, which are cut off. Both together are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from smq_storage.conversion.exact_cast import InexactValue

MICROS, NANOS = "us", "ns"
"""Values of ``coerce_int96_timestamp_unit``."""


def read_batches(
    file: pq.ParquetFile, open_nanos: Callable[[], pq.ParquetFile], columns: Sequence[str] | None = None, **options: Any
) -> Iterator[pa.RecordBatch]:
    """The batches of a file that was opened with MICROS; ``open_nanos`` opens it again, with NANOS,
    which is done only if it has columns of INT96.

    ``columns`` and ``options`` are those of :meth:`pyarrow.parquet.ParquetFile.iter_batches`. A column of INT96 has
    microseconds or nanoseconds in each batch, whichever has all values. Raises InexactValue with column and row if
    neither has.
    """
    names = file.schema_arrow.names if columns is None else columns
    old = [name for name in _int96_columns(file) if name in names]
    batches = file.iter_batches(columns=list(names), **options)
    if not old:
        yield from batches
        return
    first_row = 0
    for batch, nanos in zip(batches, open_nanos().iter_batches(columns=old, **options), strict=True):
        for name in old:
            try:
                times = exact_times(batch.column(name), nanos.column(name))
            except InexactValue as problem:
                raise InexactValue(problem.reason, first_row + problem.row, name) from None
            batch = batch.set_column(batch.schema.get_field_index(name), name, times)
        first_row += batch.num_rows
        yield batch


def _int96_columns(file: pq.ParquetFile) -> list[str]:
    leaves = [file.schema.column(number) for number in range(len(file.schema))]
    return list(dict.fromkeys(leaf.path.split(".")[0] for leaf in leaves if leaf.physical_type == "INT96"))


def exact_times(micros: pa.Array, nanos: pa.Array) -> pa.Array:
    if not pa.types.is_timestamp(micros.type):
        return _exact_nested(micros, nanos)
    numbers = [times.view(pa.int64()).fill_null(0).to_numpy() for times in (micros, nanos)]
    # In 64 bits, as Arrow computed the nanoseconds, so what wrapped there wraps here.
    rest = numbers[1] - numbers[0] * 1000
    if not rest.any():
        return micros
    try:
        micros.cast(pa.timestamp("ns"))
    except pa.ArrowInvalid:
        reason = "the file has times of INT96 with nanoseconds beside times outside of the years 1677 to 2262"
        raise InexactValue(f"{reason}: no type of times has both", int(np.flatnonzero(rest)[0])) from None
    return nanos


def _exact_nested(micros: pa.Array, nanos: pa.Array) -> pa.Array:
    for row in range(len(micros)):
        try:
            # Of a slice, Arrow would cast the values of the other rows too.
            exact = micros.take(pa.array([row])).cast(nanos.type).equals(nanos.slice(row, 1))
        except pa.ArrowInvalid:
            exact = False
        if not exact:
            raise InexactValue(
                "a list, struct or map has times of INT96 with nanoseconds, or outside of the years 1677 to 2262. "
                "Write the file with timestamps of 64 bits",
                row,
            )
    return nanos
