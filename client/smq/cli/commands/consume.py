"""`smq consume`: messages of a topic to stdout or into a file."""

from __future__ import annotations

import re
import threading
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smq.cli.connection.filer_watch import FilerWatch, end_process
from smq.cli.connection.session import CommandFailed, client, command, end_on_sigterm, leader_timeout, print_note
from smq.cli.connection.waiting import FilerAway, MessageWait
from smq.cli.files.formats import Columns, OutputFormat
from smq.cli.output import formatting
from smq.cli.output.rendering import ListCommand
from smq.cli.times import parse_positions, parse_time
from smq.consuming.consumer_options import AutoCommit
from smq_core.errors import DataLost, InvalidRequest

if TYPE_CHECKING:
    from smq import Consumer, TopicsConsumer

# A segment's name ends in the numbers of its range and its own, and an offset follows. A time has no such end.
POSITION = re.compile(r"-\d+-\d+-\d+:[^:]*$")


# How far another machine's clock may be ahead: messages of a minute ahead may be there.
CLOCK_SKEW = timedelta(minutes=1)
MIN_START_SECONDS = 1.0
LEAVE_SECONDS = 0.5


class OnLoss(StrEnum):
    """What a reader does about messages that are gone."""

    FAIL = "fail"
    SKIP = "skip"


app = typer.Typer(add_completion=False)


@app.command(cls=ListCommand)
@command
def consume(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC…", help="One or more topics: name, or namespace/name.")],
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="Join this group and share the topic with its members.")
    ] = None,
    from_: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="earliest|latest|TIME|POSITION",
            help="Where to start. TIME is 2024-05-01T12:00Z (in UTC without a zone), or -1h for an hour ago. POSITION "
            "is SEGMENT:OFFSET, several separated by commas, or only the offset with --segment. With --group it says "
            "where a new group begins.",
        ),
    ] = "latest",
    output_format: Annotated[
        OutputFormat | None,
        typer.Option(
            "--format", "--output", "-o", help="How to write messages.", show_default="by the name of --to, or text"
        ),
    ] = None,
    max_: Annotated[int | None, typer.Option("--max", "-n", min=1, help="Stop after this many messages.")] = None,
    idle_timeout: Annotated[
        float | None,
        typer.Option(
            "--idle-timeout",
            min=0,
            metavar="SECONDS",
            help="Stop when no message has come for this time. If reading fails, it ends with an error.",
        ),
    ] = None,
    exit_at_end: Annotated[
        bool, typer.Option("--exit-at-end", "-e", help="Stop as soon as everything that is there was printed.")
    ] = False,
    to: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write to this file instead of stdout; its suffix says the format."),
    ] = None,
    segment: Annotated[
        list[str] | None, typer.Option("--segment", metavar="SEGMENT", help="Read only this segment; may be repeated.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", metavar="N", help="Print only messages of this slot of the hash ring.")
    ] = None,
    meta: Annotated[
        bool, typer.Option("--meta", help="Add segment, offset, partition and times to each message.")
    ] = False,
    key_delimiter: Annotated[
        str | None,
        typer.Option("--key-delimiter", metavar="TEXT", help="In text, print the key and TEXT before the value."),
    ] = None,
    print_: Annotated[
        str | None,
        typer.Option(
            "--print",
            metavar="FORMAT",
            help="In text, print each message by this format, as kcat and rpk do: '%k\\t%v\\n'. %v value, %k key, "
            "%h headers, %t topic, %p slot, %S segment, %o offset, %T timestamp.",
        ),
    ] = None,
    last: Annotated[
        int | None,
        typer.Option("--last", min=1, metavar="N", help="Start N messages before the end of each open segment."),
    ] = None,
    headers: Annotated[
        bool, typer.Option("--headers", help="In text and CSV, print the headers too; JSON and Parquet have them.")
    ] = False,
    schema: Annotated[
        Columns,
        typer.Option(
            help="The columns of messages that were written before the topic's schema changed: those of the newest "
            "schema, or their own."
        ),
    ] = Columns.NEWEST,
    on_loss: Annotated[
        OnLoss, typer.Option(help="What to do if messages are gone: end with an error, or continue after them.")
    ] = OnLoss.FAIL,
) -> None:
    """Print the messages of topics as they arrive, until --max, --idle-timeout, --exit-at-end or Ctrl-C.

    With --group, printed messages are committed, and the next member continues after them. Of several topics, JSON and
    --meta have the field _topic, and --print has %t.
    """
    # Imported late: they load Arrow, which other commands do not need.
    from smq.cli.files.line_template import LineTemplate
    from smq.cli.files.message_writer import MessageWriter
    from smq.cli.files.parquet_parts import ParquetParts
    from smq.cli.files.sinks import Shown, open_sink

    end_on_sigterm()
    start = parse_start(from_, segment)
    if output_format is None:
        output_format = OutputFormat.of_file(to) if to is not None else OutputFormat.TEXT
    if key_delimiter is not None and output_format is not OutputFormat.TEXT:
        raise InvalidRequest(f"--key-delimiter is for text; {output_format.value} has the key as a field")
    if schema is Columns.OWN and output_format in (OutputFormat.PARQUET, OutputFormat.CSV):
        kind = "a Parquet file" if output_format is OutputFormat.PARQUET else "CSV"
        raise InvalidRequest(f"{kind} has one schema: leave out --schema own, or use --format json")
    if print_ is not None and (output_format is not OutputFormat.TEXT or key_delimiter is not None or headers or meta):
        raise InvalidRequest(
            "--print says all of a line of text: leave out --format, --key-delimiter, --headers, --meta"
        )
    if last is not None and (from_ != "latest" or group is not None):
        raise InvalidRequest(
            "--last says where to start, and a group continues where it is: leave out --from and --group"
        )
    several = len(topics) > 1
    if several:
        _check_several(output_format, start, segment, partition)
    template = None if print_ is None else LineTemplate(print_)
    in_parts = group is not None and output_format is OutputFormat.PARQUET
    if in_parts and to is None:
        raise InvalidRequest(
            "Parquet of a group goes to a file, because its messages are committed when it is whole: add --to FILE"
        )
    with client() as connected:
        # Positions that a person types are checked by seek. Those of a group's start are checked anyway.
        typed = start if group is None and isinstance(start, dict) else None
        options: dict[str, Any] = {
            "group": group,
            "start": "earliest" if typed is not None else start,
            "on_loss": on_loss.value,
            "schema": schema.value,
        }
        with FilerWatch(connected, topics[0], timeout=_start_timeout(idle_timeout)):
            consumer: Consumer | TopicsConsumer
            if several:
                # Each write is flushed, so nothing has to be written before the end of a segment is committed.
                at_ends: AutoCommit = "segment_end" if group is not None else False
                consumer = connected.topics_consumer(topics, auto_commit=at_ends, **options)
                readers = [consumer[name] for name in sorted(consumer.topics)]
            else:
                consumer = reader = connected.consumer(
                    topics[0],
                    segments=segment or None,
                    partitions=None if partition is None else [partition],
                    on_segment_end=None if group is None else lambda name, end: writer.segment_ended(reader, name, end),
                    **options,
                )
                readers = [reader]
            for it in readers:
                if typed is not None:
                    it.seek(typed)
                elif last is not None:
                    it.seek({name: max(0, end - last) for name, end in it.positions.items()})
        with consumer:
            # Not before the topic is known, because it truncates the file.
            shown = Shown(meta, headers, key_delimiter, template)
            sink = ParquetParts(to, shown) if in_parts and to is not None else open_sink(output_format, to, shown)
            named = template is not None or (several and (meta or output_format is OutputFormat.JSON))
            writer = MessageWriter(sink, commits=group is not None, partition=partition, names_topic=named)
            # Other members of the group wait for the commit too, when they are at the end.
            wait = MessageWait(
                client=connected, topics=topics, timeout=idle_timeout, exit_at_end=exit_at_end, on_idle=writer.complete
            )
            try:
                writer.write_all(consumer, max_, wait.poll)
            except DataLost as error:
                gone = error.message.partition(". Poll again")[0]  # what follows is for programs
                raise CommandFailed(f"{gone}. With --on-loss skip reading goes on after them") from None
            except FilerAway as error:
                _leave(consumer)
                end_process(str(error))
            finally:
                if to is not None:
                    print_note(f"{formatting.plural(writer.count, 'message')} in {to}")
    if exit_at_end and start == "latest" and group is None and not writer.count:
        print_note(
            f"it began at the end of {', '.join(topics)}, so there was nothing to print; "
            "--from earliest prints what is there"
        )


def _check_several(output_format: OutputFormat, start: Any, segments: list[str] | None, partition: int | None) -> None:
    """Raises InvalidRequest for what only one topic has."""
    if output_format in (OutputFormat.PARQUET, OutputFormat.CSV):
        raise InvalidRequest(
            f"a {output_format.value} file has the columns of one topic: use --format json, or a command for each topic"
        )
    if segments or partition is not None or isinstance(start, dict):
        raise InvalidRequest(
            "segments, slots and positions are of one topic: leave out --segment, --partition and positions in --from, "
            "or name one topic"
        )


def _start_timeout(idle_timeout: float | None) -> float:
    """How long the filer may take to find the start, in seconds."""
    return leader_timeout() if idle_timeout is None else min(leader_timeout(), max(MIN_START_SECONDS, idle_timeout))


def _leave(consumer: Consumer | TopicsConsumer) -> None:
    """Leaves the group, and does not wait for requests to the filer, as closing would."""
    closing = threading.Thread(target=consumer.close, name="smq-close", daemon=True)
    closing.start()
    closing.join(LEAVE_SECONDS)


def parse_start(text: str, segments: list[str] | None) -> Any:
    """The start of a consumer for the text of ``--from``. Raises InvalidRequest."""
    if text in ("earliest", "latest"):
        return text
    if text.isdecimal() and segments:
        return {segment: int(text) for segment in segments}
    if POSITION.search(text.split(",")[0]):
        return parse_positions([text], "--from")
    try:
        found = parse_time(text, "--from")
    except InvalidRequest:
        raise InvalidRequest(
            "--from takes earliest, latest, a time such as 2024-05-01T12:00:00Z or -1h (an hour ago), or a position "
            f"such as flights-0-1024-0:500, not {text!r}"
        ) from None
    if found > datetime.now(UTC) + CLOCK_SKEW:
        raise InvalidRequest(
            f"--from {text} is in the future, so no message is there yet; --from latest waits for new ones"
        )
    return found
