"""`smq publish`: rows of a file, or lines of stdin, into a topic."""

from __future__ import annotations

import sys
import time
from collections import deque
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smq.cli import words
from smq.cli.formats import Format
from smq.cli.session import client, command, end_on_sigterm, err, note, out
from smq.cli.topics import TopicName
from smq_core.errors import InvalidRequest
from smq_core.model import Column

if TYPE_CHECKING:
    import pyarrow as pa

    from smq import Delivery, Producer, TopicInfo


@command
def publish(
    topic: TopicName,
    from_: Annotated[
        str, typer.Option("--from", metavar="FILE|-", help="A .parquet, .csv or .json (lines) file; - is stdin.")
    ] = "-",
    key: Annotated[
        str | None, typer.Option("--key", metavar="COLUMN", help="The column with the message's key.")
    ] = None,
    input_: Annotated[
        Format | None, typer.Option("--input", help="What the input is, when its name does not tell.")
    ] = None,
) -> None:
    """Publish rows of a file, or what comes in on stdin: one message a line.

    With a topic schema, columns are matched by name and cast if no value is lost by it. Without one, a row becomes a
    JSON object, unless it has a column `value`.
    """
    from smq.cli.sources import format_of, tables  # with Arrow, which no other command shall wait for

    end_on_sigterm()
    began = time.monotonic()
    with client() as connected:
        info = connected.admin().topic(topic)
        columns = [Column(*column) for column in info.schema]
        format_ = input_ or format_of(from_, bool(columns))
        _check_key(info, columns, key, format_)
        if from_ == "-" and sys.stdin.isatty():
            note("one message a line; Ctrl-D ends")
        with connected.producer(topic) as producer:
            rows = _Rows(producer, columns, key, format_)
            for table in tables(from_, format_, columns, key, sys.stdin.buffer):
                rows.write(table)
            rows.finish()
    seconds = time.monotonic() - began
    out.print(
        f"{words.plural(rows.written, 'message')} published to {words.topic(info.name)} "
        f"in {seconds:.1f} s ({words.count(rows.written / seconds)}/s)"
    )


class _Rows:
    """Hands tables to a producer, and stops at the first one that failed."""

    def __init__(self, producer: Producer, columns: list[Column], key: str | None, format_: Format) -> None:
        self.written = 0
        self._producer = producer
        self._columns = columns
        self._key = key
        self._format = format_
        self._waiting: deque[tuple[int, Delivery[Any]]] = deque()
        self._status = err.status("publishing") if err.is_terminal else None
        self._told_unused = False

    def write(self, table: pa.Table) -> None:
        if self._status is not None:
            self._status.start()
        from smq.cli.rows import fit, messages

        if self._columns:
            self._tell_unused(table)
            made, key = fit(table, self._columns), self._key
        else:
            # Lines and JSON objects carry their key already.
            made, key = messages(table, self._key if self._format in (Format.PARQUET, Format.CSV) else None), None
        self._waiting.append((made.num_rows, self._producer.write(made, key=key)))
        while self._waiting and self._waiting[0][1].done():
            self._take()
        if self._status is not None:
            self._status.update(f"{self.written:,} messages are durable")

    def finish(self) -> None:
        """Waits for everything."""
        try:
            self._producer.flush()
            while self._waiting:
                self._take()
        finally:
            if self._status is not None:
                self._status.stop()

    def _take(self) -> None:
        count, delivery = self._waiting.popleft()
        delivery.result()
        self.written += count

    def _tell_unused(self, table: pa.Table) -> None:
        from smq.cli.rows import unused

        left_out = unused(table.column_names, self._columns)
        if left_out and not self._told_unused:
            self._told_unused = True
            note(f"the topic has no columns {', '.join(left_out)}: they are left out")


def _check_key(info: TopicInfo, columns: list[Column], key: str | None, format_: Format) -> None:
    if key is None:
        return
    if columns and info.key and key != info.key:
        raise InvalidRequest(
            f"topic {words.topic(info.name)} is hashed by {info.key}: another key would break the order of its "
            "messages. Leave --key out"
        )
    if columns and key not in {c.name for c in columns}:
        raise InvalidRequest(f"the topic has no column {key}; it has {', '.join(c.name for c in columns)}")
    if not columns and format_ is Format.LINES:
        raise InvalidRequest("plain lines have no columns to take a key from: leave --key out, or add --input json")
