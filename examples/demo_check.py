"""Compares the source data, the messages that the group read, and the content of the Parquet files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich.table import Table
from rich.text import Text

from smq_storage.object_store.store import Store

Counts = Mapping[str, int]


@dataclass(frozen=True)
class ReadResult:
    """The messages that all members of the group read, compared with the sent ones."""

    per_carrier: Counts
    duplicates: int
    lost: int
    disorder: int
    redelivered: int


@dataclass(frozen=True)
class InFiles:
    """DuckDB's counts in the Parquet files. ``distinct`` is the count of distinct numbers."""

    per_carrier: Counts
    distinct: int


def per_carrier(table: pa.Table) -> Counts:
    counted = table.group_by("carrier").aggregate([([], "count_all")]).sort_by("carrier")
    return dict(zip(counted["carrier"].to_pylist(), counted["count_all"].to_pylist(), strict=True))


def check_read(read: pa.Table, sent: int) -> ReadResult:
    """Compares the read messages with the numbers 0 .. sent - 1, each of which was sent once.

    A message that the group read again after a change of its members (same segment, same offset) is redelivered, not
    duplicated, because the log has it once.
    """
    in_order = read.sort_by("read_at")
    once = _first_deliveries(in_order)
    copies = np.bincount(once["number"].to_numpy(), minlength=sent)
    return ReadResult(
        per_carrier=per_carrier(once),
        duplicates=int((copies > 1).sum()),
        lost=int((copies[:sent] == 0).sum()),
        disorder=_disorder(once),
        redelivered=read.num_rows - once.num_rows,
    )


def read_files(store: Store, folder: Path) -> InFiles:
    """Copies the topic's Parquet files and counts their rows with DuckDB."""
    for found in store.list("default/flights"):
        if found.path.endswith(".parquet"):
            copy = folder / found.path
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(store.get(found.path).data)
    flights = f"read_parquet('{folder}/**/*.parquet')"
    database = duckdb.connect()
    rows = database.execute(f"SELECT carrier, count(*) FROM {flights} GROUP BY carrier ORDER BY carrier").fetchall()
    distinct = database.execute(f"SELECT count(DISTINCT number) FROM {flights}").fetchall()[0][0]
    return InFiles(dict(rows), distinct)


def report(truth: Counts, read: ReadResult, files: InFiles, streamed: Counts | None = None) -> tuple[Table, bool]:
    """The final table, and whether every count is right. ``streamed`` is None if no Spark counted."""
    table = Table(title="Flights per carrier", title_style="bold", caption_style="")
    with_spark = [] if streamed is None else ["Spark's stream"]
    for heading in ("carrier", "sent", "read by the group", "DuckDB on the files", *with_spark, ""):
        table.add_column(heading, justify="left" if heading in ("carrier", "") else "right")
    right = True
    columns = (truth, read.per_carrier, files.per_carrier, *([] if streamed is None else [streamed]))
    unused = [""] * len(with_spark)
    for carrier in sorted({carrier for column in columns for carrier in column}):
        counts = [column.get(carrier, 0) for column in columns]
        table.add_row(carrier, *(f"{count:,}" for count in counts), _mark(len(set(counts)) == 1))
        right &= len(set(counts)) == 1
    table.add_section()
    totals = [sum(column.values()) for column in columns]
    table.add_row("all", *(f"{total:,}" for total in totals), _mark(len(set(totals)) == 1))
    table.add_section()
    for name, in_read, in_files in (
        ("duplicates", read.duplicates, totals[2] - files.distinct),
        ("lost", read.lost, totals[0] - files.distinct),
        ("out of order", read.disorder, None),
    ):
        zero = not in_read and not in_files
        table.add_row(name, "", f"{in_read:,}", "" if in_files is None else f"{in_files:,}", *unused, _mark(zero))
        right &= zero
    if read.redelivered:
        # The log has them once. After a handover a group reads again what it had not committed.
        table.add_row("read again", "", f"{read.redelivered:,}", "", *unused, "")
    return table, right


def _first_deliveries(in_order: pa.Table) -> pa.Table:
    """The first read of each (segment, offset)."""
    numbered = in_order.append_column("row", pa.array(np.arange(in_order.num_rows)))
    first = numbered.group_by(["segment", "offset"]).aggregate([("row", "min")])["row_min"]
    return in_order.take(np.sort(first.to_numpy()))


def _disorder(in_order: pa.Table) -> int:
    """How many messages were read after a message of the same tailnum that was sent later."""
    keyed = in_order.filter(pc.is_valid(in_order["tailnum"]))
    keys = keyed["tailnum"].combine_chunks().dictionary_encode().indices.to_numpy()
    by_key = np.argsort(keys, kind="stable")
    keys, numbers = keys[by_key], keyed["number"].to_numpy()[by_key]
    return int(((np.diff(numbers) < 0) & (np.diff(keys) == 0)).sum())


def _mark(right: bool) -> Text:
    return Text("✓", style="green") if right else Text("✗ wrong", style="bold red")
