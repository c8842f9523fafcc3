"""`smq consume`: messages of a topic to stdout or into a Parquet file."""

from __future__ import annotations

import functools
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smq.cli import words
from smq.cli.formats import Form
from smq.cli.session import client, command, end_on_sigterm, note
from smq.cli.topics import TopicName
from smq_core.errors import InvalidRequest

if TYPE_CHECKING:
    from smq import Consumer
    from smq.cli.sinks import Sink

QUIET = 3.0  # seconds without a message after which a person may wonder


@command
def consume(
    topic: TopicName,
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="Share the topic with this group's members.")
    ] = None,
    from_: Annotated[
        str, typer.Option("--from", metavar="earliest|latest|TIME", help="Where to begin; TIME as 2024-05-01T12:00Z.")
    ] = "latest",
    form: Annotated[Form, typer.Option("--format", "-f", help="How messages are written.")] = Form.TEXT,
    max_: Annotated[int | None, typer.Option("--max", "-n", min=1, help="End after so many messages.")] = None,
    timeout: Annotated[float | None, typer.Option(min=0, help="End when nothing has come for so many seconds.")] = None,
    to: Annotated[Path | None, typer.Option(metavar="FILE", help="Write there instead of to stdout.")] = None,
    meta: Annotated[
        bool, typer.Option("--meta", help="Add segment, offset, partition and times to each message.")
    ] = False,
) -> None:
    """Print the messages of a topic as they come, until --max, --timeout or Ctrl-C.

    With --group, what was printed is committed, and another member goes on from there.
    """
    from smq.cli.sinks import open_sink  # with Arrow, which no other command shall wait for

    end_on_sigterm()
    start = _start(from_)
    with client() as connected:
        sink = open_sink(form, to, meta)
        with connected.consumer(topic, group=group, start=start) as consumer:
            count = _copy(consumer, sink, max_, timeout, commits=group is not None)
    if to is not None:
        note(f"{words.plural(count, 'message')} in {to}")


def _copy(consumer: Consumer, sink: Sink, most: int | None, timeout: float | None, *, commits: bool) -> int:
    """Returns the number of messages written. Only what was written and flushed is committed."""
    count = 0
    positions: dict[str, int] = {}
    with sink:
        while most is None or count < most:
            batch = consumer.poll(timeout if timeout is not None else QUIET)
            if batch is None:
                if timeout is not None:
                    break
                if not count:
                    _tell_waiting()
                continue
            rows = batch.table if most is None else batch.table.slice(0, most - count)
            sink.write(rows, batch.segment, batch.first_offset)
            count += rows.num_rows
            positions |= dict(batch.positions) | {batch.segment: batch.first_offset + rows.num_rows}
            if commits and sink.flushed:
                consumer.commit(positions)
    # A Parquet file can be read only when it is whole; so its messages count only now.
    if commits and positions and not sink.flushed:
        consumer.commit(positions)
    return count


@functools.cache
def _tell_waiting() -> None:
    """Once."""
    if sys.stderr.isatty():
        note("nothing yet; waiting for new messages. --from earliest begins with the old ones, Ctrl-C ends")


def _start(text: str) -> Any:
    if text in ("earliest", "latest"):
        return text
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise InvalidRequest(
            f"--from takes earliest, latest or a time such as 2024-05-01T12:00:00Z, not {text!r}"
        ) from None
