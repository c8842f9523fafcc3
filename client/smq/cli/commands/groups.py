"""`smq group …`."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from smq.cli.connection.filer_watch import FilerWatch, filer_named
from smq.cli.connection.session import CommandFailed, TopicName, client, command, confirm, out, print_note
from smq.cli.output import formatting
from smq.cli.output.rendering import ListCommand, Output, OutputOption, print_json, print_list, print_table, print_value
from smq.cli.times import parse_positions, parse_time
from smq_core.errors import InvalidRequest

if TYPE_CHECKING:
    from smq import GroupInfo, GroupReset, KafkaGroupInfo

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Consumer groups: list, describe, reset, delete, export, import."
)

GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="A consumer group of the topic.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")]


@app.command("list", cls=ListCommand)
@command
def list_groups(
    topic: Annotated[str | None, typer.Argument(metavar="[TOPIC]", help="Only groups of this topic.")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List consumer groups: members, messages that they have not committed yet, and the age of the oldest of these."""
    with client() as connected, filer_named(connected, see="smq group list"):
        admin = connected.admin()
        # A topic without segments is not created yet, because the filer does not answer. It has no groups.
        topics = [admin.topic(topic)] if topic else [it for it in admin.topics() if it.segments]
        found = [(t.name, group) for t in topics for group in admin.groups(t.name)]
        kafka = [(t.name, group) for t in topics for group in admin.kafka_groups(t.name)]
    now = datetime.now(UTC)
    print_list(
        output,
        [{"topic": name, "group": group} for name, group in found]
        + [{"topic": name, "kafka_group": group} for name, group in kafka],
        ["TOPIC", "GROUP", "KIND", "MEMBERS", "GENERATION", "LAG", "OLDEST", "COMMITTED"],
        [
            (
                formatting.topic(name),
                group.name,
                "smq",
                str(len(group.members)),
                str(group.generation),
                _lag(group),
                _oldest(group),
                _ago(group.committed_at, now),
            )
            for name, group in found
        ]
        + [
            (formatting.topic(name), it.name, "Kafka", "–", "–", _lag(it), "–", _ago(it.committed_at, now))
            for name, it in kafka
        ],
        right=["MEMBERS", "GENERATION", "LAG", "OLDEST"],
        wide=["COMMITTED"],
    )


@app.command(cls=ListCommand)
@command
def describe(topic: TopicName, group: GroupName, output: OutputOption = Output.TABLE) -> None:
    """Show one group: its members, and its position and lag in each segment that it has not read to its end."""
    with client() as connected, filer_named(connected, see=f"smq group describe {topic} {group}"):
        admin = connected.admin()
        name = admin.topic(topic).name
        kafka = next((it for it in admin.kafka_groups(topic, describe=group) if it.name == group), None)
        found = next((it for it in admin.groups(topic) if it.name == group), None)
        if kafka is None and found is None:
            admin.group(topic, group)  # raises, and says which groups there are
    both = {"group": found, "kafka_group": kafka}
    if print_value(output, {"topic": name, **{kind: it for kind, it in both.items() if it is not None}}):
        return
    if found is not None:
        _describe(name, found)
    if kafka is not None:
        _describe_kafka(name, kafka)


def _describe(name: str, found: GroupInfo) -> None:
    now = datetime.now(UTC)
    details = {
        "Name": found.name,
        "Topic": formatting.topic(name),
        "State": "active" if found.members else "no members",
        "Generation": str(found.generation),
        "Lag": f"{_lag(found)}{f', the oldest {_oldest(found)} old' if found.lag else ''}",
        "Committed": _ago(found.committed_at, now),
        "Active": "now" if found.members else _ago(found.last_active_at, now),
    }
    for heading, text in details.items():
        out.print(Text.assemble((f"{heading + ':':<13}", "bold"), text))
    out.print()
    print_table(
        ["SEGMENT", "POSITION", "END", "LAG", "MEMBER"],
        [(it.segment, f"{it.position:,}", f"{it.end:,}", f"{it.lag:,}", it.member or "–") for it in found.segments],
        right=["POSITION", "END", "LAG"],
    )
    for it in found.segments:
        if it.waits_for_commit:
            print_note(
                f"{it.member} has returned all messages of {it.segment}: the group waits for its commit of offset "
                f"{it.end}, and reads what follows the segment then"
            )


def _describe_kafka(name: str, found: KafkaGroupInfo) -> None:
    now = datetime.now(UTC)
    details = {
        "Name": found.name,
        "Topic": formatting.topic(name),
        "Kind": "Kafka",
        "Lag": _lag(found),
        "Committed": _ago(found.committed_at, now),
        "Active": _ago(found.last_active_at, now),
    }
    for heading, text in details.items():
        out.print(Text.assemble((f"{heading + ':':<13}", "bold"), text))
    out.print()
    print_table(
        ["PARTITION", "COMMITTED", "END", "LAG"],
        [(str(it.partition), f"{it.committed:,}", f"{it.end:,}", f"{it.lag:,}") for it in found.partitions],
        right=["PARTITION", "COMMITTED", "END", "LAG"],
    )
    print_note("kafka-consumer-groups.sh --describe shows its members, and the messages that are in no file yet")


@app.command(cls=ListCommand)
@command
def reset(
    topic: TopicName,
    group: GroupName,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the oldest messages that there are.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="After the newest message.")] = False,
    to_time: Annotated[
        str | None,
        typer.Option(
            "--to-time", metavar="TIME", help="To the first message since TIME: 2024-05-01T12:00Z, or -1h: an hour ago."
        ),
    ] = None,
    to_position: Annotated[
        list[str] | None,
        typer.Option("--to-position", metavar="SEGMENT:OFFSET", help="To these positions; may be repeated."),
    ] = None,
    by: Annotated[
        int | None,
        typer.Option("--by", metavar="N", help="N messages on in each segment that it reads now, or back: --by -100."),
    ] = None,
    dry_run: DryRun = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Set where a group continues. Refused while it has members, which would commit over it."""
    given = [to_earliest, to_latest, to_time is not None, bool(to_position), by is not None]
    if sum(given) != 1:
        raise InvalidRequest(
            "say where the group shall continue by exactly one of --to-earliest, --to-latest, --to-time, "
            "--to-position, --by"
        )
    to: Any = "earliest" if to_earliest else "latest" if to_latest else None
    if to_time is not None:
        to = parse_time(to_time, "--to-time")
    elif to_position:
        to = parse_positions(to_position, "--to-position")
    with client() as connected, FilerWatch(connected, topic):
        done = connected.admin().reset_group(topic, group, to, by=by, dry_run=dry_run)
    _print_reset(done, output, dry_run)


@app.command()
@command
def delete(
    topic: TopicName, group: GroupName, yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False
) -> None:
    """Delete a group and its positions. Refused while it has members."""
    with client() as connected, filer_named(connected, see=f"smq group list {topic}"):
        admin = connected.admin()
        found = admin.group(topic, group)
        if not yes and not confirm(f"Delete group {found.name} of topic {topic}, with its positions?"):
            raise CommandFailed("nothing was deleted")
        admin.delete_group(topic, group)
    out.print(f"group {group} of topic {topic} deleted")


@app.command()
@command
def export(topic: TopicName, group: GroupName) -> None:
    """Print the positions of a group as JSON, which `smq group import` sets again."""
    with client() as connected, filer_named(connected, see=f"smq group describe {topic} {group}"):
        admin = connected.admin()
        of, found = admin.topic(topic), admin.group(topic, group)
    if found.unreadable:
        raise CommandFailed(f"the positions of group {group} cannot be read; `smq topic list` shows why")
    print_json({"topic": of.name, "uid": of.uid, "group": found.name, "positions": found.positions})


@app.command("import", cls=ListCommand)
@command
def import_(
    topic: TopicName,
    group: GroupName,
    file: Annotated[
        str, typer.Option("--from", metavar="FILE|-", help="What `smq group export` has printed; - is stdin.")
    ] = "-",
    dry_run: DryRun = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Set the positions of a group, which may be new, to exported ones. Refused while it has members."""
    exported = _read_export(file)
    with client() as connected, FilerWatch(connected, topic):
        admin = connected.admin()
        of = admin.topic(topic)
        if exported.get("uid", of.uid) != of.uid:
            raise InvalidRequest(
                f"{_source(file)}: the positions are of a topic {exported.get('topic')} with the uid "
                f"{exported['uid']}, but {of.name} has {of.uid}: it is another topic, or was deleted and made anew"
            )
        done = admin.reset_group(topic, group, exported["positions"], create=True, dry_run=dry_run)
    _print_reset(done, output, dry_run)


def _source(file: str) -> str:
    return "standard input" if file == "-" else file


def _read_export(file: str) -> dict[str, Any]:
    text = sys.stdin.read() if file == "-" else Path(file).read_text()
    try:
        found = json.loads(text)
        positions = found["positions"]
        valid = all(isinstance(s, str) and type(o) is int and o >= 0 for s, o in positions.items())
    except (ValueError, TypeError, KeyError, AttributeError):
        valid = False
    if not valid:
        raise InvalidRequest(
            f"{_source(file)} is not what `smq group export` prints: a JSON object with positions, "
            "{segment: next offset}"
        )
    return dict(found)


def _print_reset(done: GroupReset, output: Output, dry_run: bool) -> None:
    print_list(
        output,
        done,
        ["SEGMENT", "BEFORE", "AFTER"],
        [
            (segment, _position(done.before, segment), _position(done.positions, segment))
            for segment in sorted({*done.before, *done.positions}, key=lambda s: int(s.rpartition("-")[2]))
        ],
        right=["BEFORE", "AFTER"],
    )
    if output in (Output.TABLE, Output.WIDE):
        if not done.positions:
            print_note("the group begins at the oldest messages")
        print_note("nothing was changed (--dry-run)" if dry_run else f"group {done.group} continues there")


def _position(positions: dict[str, int], segment: str) -> str:
    return f"{positions[segment]:,}" if segment in positions else "–"


def _lag(group: GroupInfo | KafkaGroupInfo) -> str:
    if group.unreadable:
        return "unreadable"
    return f"{group.lag:,}" if group.lag is not None else "–"


def _oldest(group: GroupInfo) -> str:
    if not group.lag or group.lag_seconds is None:
        return "–"
    return formatting.span(group.lag_seconds)


def _ago(at: datetime | None, now: datetime) -> str:
    return f"{formatting.age(at, now)} ago" if at else "–"
