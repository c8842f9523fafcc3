"""`smq consume`: messages of a topic to stdout or into a Parquet file."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smq.cli import formatting
from smq.cli.commands.topics import TopicName
from smq.cli.files.formats import Columns, OutputFormat
from smq.cli.session import client, command, end_on_sigterm, print_note
from smq.cli.waiting import MessageWait
from smq_core.errors import InvalidRequest

if TYPE_CHECKING:
    from smq import Batch, Consumer
    from smq.cli.files.sinks import Sink


@command
def consume(
    topic: TopicName,
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="Join this group and share the topic with its members.")
    ] = None,
    from_: Annotated[
        str,
        typer.Option("--from", metavar="earliest|latest|TIME", help="Where to start; TIME such as 2024-05-01T12:00Z."),
    ] = "latest",
    output_format: Annotated[
        OutputFormat, typer.Option("--format", "-f", help="How to write messages.")
    ] = OutputFormat.TEXT,
    max_: Annotated[int | None, typer.Option("--max", "-n", min=1, help="Stop after this many messages.")] = None,
    timeout: Annotated[
        float | None, typer.Option(min=0, help="Stop after this many seconds without a message.")
    ] = None,
    to: Annotated[Path | None, typer.Option(metavar="FILE", help="Write to this file instead of stdout.")] = None,
    meta: Annotated[
        bool, typer.Option("--meta", help="Add segment, offset, partition and times to each message.")
    ] = False,
    schema: Annotated[
        Columns,
        typer.Option(
            help="The columns of messages that were written before the topic's schema changed: those of the newest "
            "schema, or their own."
        ),
    ] = Columns.NEWEST,
) -> None:
    """Print the messages of a topic as they arrive, until --max, --timeout or Ctrl-C.

    With --group, printed messages are committed, and the next member continues after them.
    """
    from smq.cli.files.sinks import open_sink  # imported late: it loads Arrow, which other commands do not need

    end_on_sigterm()
    start = _parse_start(from_)
    if schema is Columns.OWN and output_format is OutputFormat.PARQUET:
        raise InvalidRequest("a Parquet file has one schema: leave out --schema own, or use --format json")
    with client() as connected:
        sink = open_sink(output_format, to, meta)
        with connected.consumer(topic, group=group, start=start, schema=schema.value) as consumer:
            waits = MessageWait(connected, topic)
            count = _write_messages(consumer, sink, max_, timeout, commits=group is not None, poll=waits.poll)
    if to is not None:
        print_note(f"{formatting.plural(count, 'message')} in {to}")


def _write_messages(
    consumer: Consumer,
    sink: Sink,
    max_messages: int | None,
    timeout: float | None,
    *,
    commits: bool,
    poll: Callable[[Consumer, float | None], Batch | None],
) -> int:
    """Returns the number of messages written. Only what was written and flushed is committed."""
    count = 0
    positions: dict[str, int] = {}
    with sink:
        while max_messages is None or count < max_messages:
            batch = poll(consumer, timeout)
            if batch is None:
                break
            rows = batch.table if max_messages is None else batch.table.slice(0, max_messages - count)
            sink.write(rows, batch.segment, batch.first_offset)
            count += rows.num_rows
            positions |= dict(batch.positions) | {batch.segment: batch.first_offset + rows.num_rows}
            if commits and sink.flushed:
                consumer.commit(positions)
    # A Parquet file is readable only when it is complete, so its messages are committed only now.
    if commits and positions and not sink.flushed:
        consumer.commit(positions)
    return count


def _parse_start(text: str) -> Any:
    if text in ("earliest", "latest"):
        return text
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise InvalidRequest(
            f"--from takes earliest, latest or a time such as 2024-05-01T12:00:00Z, not {text!r}"
        ) from None
