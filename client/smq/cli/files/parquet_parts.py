"""One Parquet file that a group's member can complete several times while it writes, because it is whole only then."""

from __future__ import annotations

import itertools
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from smq.cli.files.sinks import Offsets, ParquetSink, Shown, Sink


class ParquetParts(Sink):
    """Writes into ``x.parquet``; what follows a completion goes to ``x.part2.parquet`` and so on.

    ``close`` puts all parts into ``x.parquet``. If the process is killed before, every completed part is a whole file.
    """

    flushed = False

    def __init__(self, to: Path, shown: Shown) -> None:
        self._to = to
        self._shown = shown
        self._parts = [to]
        self._part: ParquetSink | None = ParquetSink(to.open("wb"), shown)
        self._schema: pa.Schema | None = None
        """Of all parts, because they become one file."""
        self._has_rows = False
        """Whether the open part has any."""

    def write(self, rows: pa.Table, segment: str, offsets: Offsets) -> None:
        if self._part is None:
            self._parts.append(self._unused("part", len(self._parts) + 1))
            self._part = ParquetSink(self._parts[-1].open("wb"), self._shown, self._schema)
        self._part.write(rows, segment, offsets)
        self._schema = self._part.schema
        self._has_rows = True

    def complete(self) -> None:
        if self._part is not None and self._has_rows:
            self._part.close()
            self._part, self._has_rows = None, False

    def close(self) -> None:
        if self._part is not None:
            self._part.close()
            self._part = None
        if len(self._parts) > 1:
            self._merge()

    def _merge(self) -> None:
        merged = self._unused("merged", 1)
        schema = pq.read_schema(self._parts[0])
        with pq.ParquetWriter(merged, schema, compression="zstd") as writer:
            for part in self._parts:
                if not part.stat().st_size:
                    continue  # no rows were written
                with pq.ParquetFile(part) as file:
                    for group in range(file.num_row_groups):
                        writer.write_table(file.read_row_group(group).cast(schema))
        merged.replace(self._to)
        for part in self._parts[1:]:
            part.unlink()
        self._parts = [self._to]

    def _unused(self, word: str, number: int) -> Path:
        """A name that no file has: parts of a process that was killed have messages that are committed."""
        names = (self._to.with_name(f"{self._to.stem}.{word}{n}{self._to.suffix}") for n in itertools.count(number))
        return next(name for name in names if not name.exists())
