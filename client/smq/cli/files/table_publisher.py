"""Publishes the tables of an input: all is checked first where that is possible, and errors say how much is out."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from smq.cli.connection.session import err, print_note
from smq.cli.files.column_matching import match_columns, require_known_columns, to_messages
from smq.cli.output import formatting
from smq_core.errors import SmqError
from smq_core.model.entities import Column

if TYPE_CHECKING:
    from smq import Delivery, Producer

# Values from this size on are sent one by one, because a batch has at most 16 MiB, and `send` uploads larger ones.
LARGE_VALUE_BYTES = 4 << 20

# After an interrupt, what was handed over has this long to become durable.
STOP_SECONDS = 3.0


class InputRows:
    """Makes rows of a topic from the tables of an input. ``skip`` rows at the start are left out."""

    def __init__(self, columns: list[Column], key: str | None, ignore_unknown: bool = False, skip: int = 0) -> None:
        self._columns = columns
        self._key = key
        self._ignore_unknown = ignore_unknown
        self.skip = skip
        self._rows = 0

    def of(self, table: pa.Table) -> pa.Table:
        """The rows of the next table. Raises SchemaMismatch, InvalidRequest."""
        if not self._ignore_unknown:
            require_known_columns(table.column_names, self._columns, self._key)
        first, skipped = self._rows, min(max(0, self.skip - self._rows), table.num_rows)
        self._rows += table.num_rows
        rest = table.slice(skipped)
        if self._columns:
            return match_columns(rest, self._columns, first + skipped)
        return to_messages(rest, self._key, first + skipped)


class TablePublisher:
    """Writes tables to a producer, and stops at the first that fails. ``key`` names the column with the keys."""

    def __init__(self, producer: Producer, rows: InputRows, key: str | None) -> None:
        self.written = 0
        """How many of the first rows that are not left out are durable."""
        self._sent = 0
        self._producer = producer
        self._rows = rows
        self._key = key
        self._waiting: deque[tuple[int, Delivery[Any]]] = deque()
        self._status = err.status("publishing") if err.is_terminal else None

    def publish(self, tables: Iterable[pa.Table]) -> None:
        """Returns when all rows are durable. Raises SchemaMismatch, InvalidRequest, and the errors of the producer."""
        if self._status is not None:
            self._status.start()
        try:
            for table in tables:
                self._write(self._rows.of(table))
            self._producer.flush()
            while self._waiting:
                self._await_oldest()
        except SmqError:
            with contextlib.suppress(SmqError):
                self._producer.flush()
                self._collect()
            self._print_partial("before the error")
            raise
        finally:
            if self._status is not None:
                self._status.stop()

    def print_interrupted(self) -> None:
        """Says what was published until an interrupt, after at most STOP_SECONDS."""
        with contextlib.suppress(SmqError):
            self._producer.flush(STOP_SECONDS)
        with contextlib.suppress(SmqError):
            self._collect()
        self._print_partial("before the interrupt")

    def _print_partial(self, when: str) -> None:
        verb = "was" if self.written == 1 else "were"
        text = f"{formatting.plural(self.written, 'message')} {when} {verb} published"
        if unknown := self._sent - self.written:
            text += f"; of the next {unknown:,} some may be, too"
        done = self._rows.skip + self.written
        print_note(f"{text}. To continue with the others, add --skip {done}" if done else text)

    def _write(self, rows: pa.Table) -> None:
        for part in split_large_values(rows):
            self._sent += part.num_rows
            if part.num_rows == 1 and _is_large(part):
                (row,) = part.to_pylist()
                headers = row.get("headers")
                pairs = None if headers is None else [(it["key"], it["value"]) for it in headers]
                delivery: Delivery[Any] = self._producer.send(row["value"], row["key"], pairs, row.get("timestamp"))
            else:
                delivery = self._producer.write(part, key=self._key)
            self._waiting.append((part.num_rows, delivery))
            self._collect()
        if self._status is not None:
            self._status.update(f"{self.written:,} messages are durable")

    def _collect(self) -> None:
        while self._waiting and self._waiting[0][1].done():
            self._await_oldest()

    def _await_oldest(self) -> None:
        count, delivery = self._waiting[0]
        delivery.result()
        self._waiting.popleft()
        self.written += count


def split_large_values(rows: pa.Table) -> list[pa.Table]:
    """The rows in order, in parts; a row with a large value of a topic without a schema is alone."""
    if not _is_large(rows):
        return [rows]
    large = pc.indices_nonzero(pc.greater_equal(pc.binary_length(rows["value"]), LARGE_VALUE_BYTES)).to_pylist()
    parts, at = [], 0
    for row in large:
        parts += [rows.slice(at, row - at), rows.slice(row, 1)]
        at = row + 1
    return [part for part in (*parts, rows.slice(at)) if part.num_rows]


def _is_large(rows: pa.Table) -> bool:
    """Whether some row has a large value. Only topics without a schema have ``key`` and ``value`` of bytes."""
    if not {"key", "value"} <= set(rows.column_names) or rows.schema.field("value").type != pa.binary():
        return False
    longest = pc.max(pc.binary_length(rows["value"])).as_py()
    return longest is not None and longest >= LARGE_VALUE_BYTES
