"""`smq publish`: publishes rows of a file, or lines of stdin, to a topic."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import deque
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smq.cli.connection.filer_watch import FilerWatch
from smq.cli.connection.session import TopicName, client, command, end_on_sigterm, err, out, print_note
from smq.cli.files.formats import InputFormat
from smq.cli.output import formatting
from smq_core.errors import InvalidRequest, SmqError

if TYPE_CHECKING:
    import pyarrow as pa

    from smq import Delivery, Producer, TopicInfo
    from smq_core.model.entities import Column


@command
def publish(
    topic: TopicName,
    files: Annotated[
        list[str] | None, typer.Argument(metavar="[FILE]...", help="Parquet files, with --by-reference.")
    ] = None,
    from_: Annotated[
        str, typer.Option("--from", metavar="FILE|-", help="A .parquet, .csv or .json (lines) file; - is stdin.")
    ] = "-",
    key: Annotated[
        str | None, typer.Option("--key", metavar="COLUMN", help="The column with the message's key.")
    ] = None,
    input_: Annotated[
        InputFormat | None, typer.Option("--input", help="The format of the input, if its name does not show it.")
    ] = None,
    key_delimiter: Annotated[
        str | None,
        typer.Option(
            "--key-delimiter",
            metavar="TEXT",
            help="In plain lines, TEXT ends the key, and the value follows; a line without it has no key.",
        ),
    ] = None,
    by_reference: Annotated[
        bool,
        typer.Option("--by-reference", help="Upload Parquet files to the filer; brokers get references to them only."),
    ] = False,
) -> None:
    """Publish the rows of a file, or the lines of stdin as one message each.

    If the topic has a schema, columns are matched by name, and cast if that changes no value. Otherwise a row becomes a
    JSON object, unless it has a column `value`.

    A JSON line with `value` is a message: `{"key": "k", "value": "text", "headers": {"name": "text"}}`. `"value": null`
    is a tombstone, and `value_base64` has bytes that are not text. The lines of `smq consume --format json` can be
    published again.

    With `--by-reference` the rows of Parquet files go to the filer, past the brokers. All files are checked first: if
    one of them does not fit the topic, nothing is published.
    """
    if by_reference or files:
        _publish_files(topic, files or [], from_, key, input_, by_reference)
        return
    from smq.cli.files.sources import format_of, tables  # imported late: Arrow, which other commands do not need
    from smq_core.model.entities import Column

    end_on_sigterm()
    started_at = time.monotonic()
    with client() as connected:
        info = connected.admin().topic(topic)
        columns = [Column(*column) for column in info.schema]
        format_ = input_ or format_of(from_, bool(columns))
        _check_key(info, columns, key, format_)
        if key_delimiter is not None and (columns or format_ is not InputFormat.LINES or not key_delimiter):
            raise InvalidRequest(
                "--key-delimiter is for plain lines, on a topic without a schema; other formats have the key in a field"
            )
        if from_ == "-" and sys.stdin.isatty():
            print_note("one message a line; Ctrl-D ends")
        with connected.producer(topic) as producer:
            rows = _TablePublisher(producer, columns, key, format_)
            try:
                for table in tables(from_, format_, columns, key, sys.stdin.buffer, key_delimiter):
                    rows.write(table)
            except SmqError:
                rows.report_partial()
                raise
            rows.finish()
    seconds = time.monotonic() - started_at
    out.print(
        f"{formatting.plural(rows.written, 'message')} published to {formatting.topic(info.name)} "
        f"in {_duration(rows.written, seconds)}"
    )


def _publish_files(
    topic: str, files: list[str], from_: str, key: str | None, input_: InputFormat | None, by_reference: bool
) -> None:
    if not by_reference:
        raise InvalidRequest("add --by-reference to publish these files, or name one file with --from")
    if not files or from_ != "-" or input_ is not None:
        raise InvalidRequest("--by-reference takes the names of Parquet files, without --from and --input")
    end_on_sigterm()
    started_at = time.monotonic()
    with client() as connected, FilerWatch(connected, topic), connected.producer(topic) as producer:
        with err.status("uploading") if err.is_terminal else contextlib.nullcontext():
            receipt = producer.publish_files(files, key).result()
        name = connected.admin().topic(topic).name
    seconds = time.monotonic() - started_at
    out.print(
        f"{formatting.plural(receipt.rows, 'message')} of {formatting.plural(len(files), 'file')} published to "
        f"{formatting.topic(name)} in {_duration(receipt.rows, seconds)}"
    )


def _duration(messages: int, seconds: float) -> str:
    """How long it took, and the rate if it says anything."""
    rate = f" ({formatting.count(messages / seconds)}/s)" if messages >= max(seconds, 2) else ""
    return f"{seconds:.1f} s{rate}"


class _TablePublisher:
    """Writes tables to a producer and stops at the first that fails."""

    def __init__(self, producer: Producer, columns: list[Column], key: str | None, format_: InputFormat) -> None:
        self.written = 0
        self._rows = 0
        self._producer = producer
        self._columns = columns
        self._key = key
        self._format = format_
        self._waiting: deque[tuple[int, Delivery[Any]]] = deque()
        self._status = err.status("publishing") if err.is_terminal else None
        self._unmatched_reported = False

    def write(self, table: pa.Table) -> None:
        """Raises SchemaMismatch, and the errors of the producer."""
        if self._status is not None:
            self._status.start()
        from smq.cli.files.column_matching import match_columns, to_messages

        # Lines and JSON objects have their key already.
        key = self._key if self._columns or self._format in (InputFormat.PARQUET, InputFormat.CSV) else None
        self._report_unmatched(table, key)
        if self._columns:
            made = match_columns(table, self._columns, self._rows)
        else:
            made, key = to_messages(table, key, self._rows), None
        self._rows += table.num_rows
        self._waiting.append((made.num_rows, self._producer.write(made, key=key)))
        while self._waiting and self._waiting[0][1].done():
            self._await_oldest()
        if self._status is not None:
            self._status.update(f"{self.written:,} messages are durable")

    def finish(self) -> None:
        """Waits until everything is durable."""
        try:
            self._producer.flush()
            while self._waiting:
                self._await_oldest()
        finally:
            if self._status is not None:
                self._status.stop()

    def _await_oldest(self) -> None:
        count, delivery = self._waiting.popleft()
        delivery.result()
        self.written += count

    def report_partial(self) -> None:
        """After an error in the input, says how many messages before it are published."""
        with contextlib.suppress(SmqError):
            self.finish()
        verb = "was" if self.written == 1 else "were"
        print_note(f"{formatting.plural(self.written, 'message')} before the error {verb} published")

    def _report_unmatched(self, table: pa.Table, key: str | None) -> None:
        from smq.cli.files.column_matching import unmatched_columns

        unmatched = unmatched_columns(table.column_names, self._columns, key)
        if unmatched and not self._unmatched_reported:
            self._unmatched_reported = True
            print_note(f"the topic has no columns {', '.join(unmatched)}; they are left out")


def _check_key(info: TopicInfo, columns: list[Column], key: str | None, format_: InputFormat) -> None:
    if key is None:
        return
    if columns and info.key and key != info.key:
        raise InvalidRequest(
            f"topic {formatting.topic(info.name)} has the key column {info.key}. Another key would break the order "
            "of its messages; leave --key out"
        )
    if columns and key not in {c.name for c in columns}:
        raise InvalidRequest(f"the topic has no column {key}; it has {', '.join(c.name for c in columns)}")
    if not columns and format_ is InputFormat.LINES:
        raise InvalidRequest(
            "plain lines have no columns to take a key from; leave --key out, or add --input json or --key-delimiter"
        )
