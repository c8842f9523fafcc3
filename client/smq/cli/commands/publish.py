"""`smq publish`: publishes rows of a file, or lines of stdin, to a topic."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from smq.cli.connection.filer_watch import FilerWatch, exit_now
from smq.cli.connection.session import TopicName, client, command, end_on_sigterm, err, out, print_note
from smq.cli.files.formats import InputFormat
from smq.cli.output import formatting
from smq_core.errors import InvalidRequest

if TYPE_CHECKING:
    import pyarrow as pa

    from smq import TopicInfo
    from smq_core.model.entities import Column


@command
def publish(
    topic: TopicName,
    files: Annotated[
        list[str] | None, typer.Argument(metavar="[FILE]...", help="Parquet files, with --by-reference.")
    ] = None,
    from_: Annotated[
        str, typer.Option("--from", metavar="FILE|-", help="A .parquet, .csv, .tsv or .json (lines) file; - is stdin.")
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
    value: Annotated[
        str | None,
        typer.Option("--value", metavar="TEXT", help="Publish this one message, and read no input; --key is its key."),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="With --value, a header; may be repeated."),
    ] = None,
    null: Annotated[
        str,
        typer.Option(
            "--null", metavar="TEXT", help="In CSV, what a field without quotes has for null. A quoted field is text."
        ),
    ] = "",
    delimiter: Annotated[
        str | None,
        typer.Option("--delimiter", metavar="CHARACTER", help="In CSV, what is between fields.", show_default=","),
    ] = None,
    ignore_unknown: Annotated[
        bool,
        typer.Option("--ignore-unknown", help="Leave out columns that the topic does not have, which are an error."),
    ] = False,
    skip: Annotated[
        int, typer.Option("--skip", min=0, metavar="N", help="Leave out the first N rows, to continue a publish.")
    ] = 0,
    by_reference: Annotated[
        bool,
        typer.Option("--by-reference", help="Upload Parquet files to the filer; brokers get references to them only."),
    ] = False,
) -> None:
    """Publish the rows of a file, or the lines of stdin as one message each.

    If the topic has a schema, columns are matched by name, and cast if that changes no value. Otherwise a row becomes a
    JSON object, unless it has a column `value`. The cells of CSV are text, or what the column of the topic says.

    A JSON line with `value` is a message: `{"key": "k", "value": "text", "headers": {"name": "text"}}`. `"value": null`
    is a tombstone, and `value_base64` has bytes that are not text. What `smq consume` writes as JSON or CSV can be
    published again.

    A file is checked before its first message is published. With stdin, an error says how many messages are out.

    With `--by-reference` the rows of Parquet files go to the filer, past the brokers. All files are checked first: if
    one of them does not fit the topic, nothing is published.
    """
    if by_reference or files:
        _publish_files(topic, files or [], from_, key, input_, by_reference)
        return
    if value is not None or header:
        _publish_value(topic, value, key, header or [], from_)
        return
    # Imported late: Arrow, which other commands do not need.
    from smq.cli.files.csv_rows import CsvDialect
    from smq.cli.files.sources import Reading, can_be_read_twice, delimiter_of, format_of, tables
    from smq.cli.files.table_publisher import InputRows, TablePublisher
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
        if format_ is not InputFormat.CSV and (null or delimiter):
            raise InvalidRequest(f"--null and --delimiter are for CSV, and the input is {format_.value}")
        if from_ == "-" and sys.stdin.isatty():
            print_note("one message a line; Ctrl-D ends")
        dialect = CsvDialect(null, delimiter or delimiter_of(from_))
        reading = Reading(key, key_delimiter, dialect, ignore_unknown)
        # Lines and JSON objects have their key already.
        column = key if columns or format_ in (InputFormat.PARQUET, InputFormat.CSV) else None

        def input_rows() -> InputRows:
            return InputRows(columns, column, ignore_unknown, skip)

        def read() -> Iterator[pa.Table]:
            return tables(from_, format_, columns, sys.stdin.buffer, reading)

        if can_be_read_twice(from_):
            checked = input_rows()
            for table in read():
                checked.of(table)
        with connected.producer(topic) as producer:
            publisher = TablePublisher(producer, input_rows(), column if columns else None)
            try:
                publisher.publish(read())
            except (KeyboardInterrupt, SystemExit) as stop:
                # Closing the producer would wait until everything is durable, or for its timeout.
                publisher.print_interrupted()
                exit_now(128 + (signal.SIGTERM if isinstance(stop, SystemExit) else signal.SIGINT))
    seconds = time.monotonic() - started_at
    out.print(
        f"{formatting.plural(publisher.written, 'message')} published to {formatting.topic(info.name)} "
        f"in {_duration(publisher.written, seconds)}"
    )


def _publish_value(topic: str, value: str | None, key: str | None, headers: list[str], from_: str) -> None:
    if value is None or from_ != "-":
        raise InvalidRequest("--header belongs to --value, which is the message itself: leave out --from")
    pairs = [(name, text.encode()) for name, found, text in (it.partition("=") for it in headers) if found]
    if len(pairs) < len(headers):
        raise InvalidRequest("--header takes NAME=VALUE, such as --header trace=7")
    end_on_sigterm()
    with client() as connected:
        if connected.admin().topic(topic).schema:
            raise InvalidRequest(
                "--value is for topics without a schema; pipe a JSON object into `smq publish`, with headers in it"
            )
        with connected.producer(topic) as producer:
            receipt = producer.send(value.encode(), None if key is None else key.encode(), pairs or None).result()
    out.print(f"1 message published to {formatting.topic(topic)}, at {receipt.segment}:{receipt.offset}")


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
