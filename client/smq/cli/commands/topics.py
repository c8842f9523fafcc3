"""`smq topic …`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from smq.cli.commands.compact import compact
from smq.cli.commands.create import create
from smq.cli.commands.recover import recover
from smq.cli.commands.segments import format_offsets
from smq.cli.commands.topic_changes import alter, export
from smq.cli.commands.trim import trim
from smq.cli.commands.verify import verify
from smq.cli.connection.filer_watch import filer_named
from smq.cli.connection.session import CommandFailed, TopicName, client, command, confirm, out, print_note
from smq.cli.output import formatting
from smq.cli.output.rendering import ListCommand, Output, OutputOption, phase, print_list, print_table, print_value, yes
from smq_core.model.units import format_time

if TYPE_CHECKING:
    from smq import StoryEvent, TopicInfo

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Topics: create, list, describe, alter, delete, and more."
)


@app.command("list", cls=ListCommand)
@command
def list_topics(output: OutputOption = Output.TABLE) -> None:
    """List all topics."""
    with client() as connected:
        topics, problems = connected.admin().topics(), connected.admin().problems()
    for problem in problems:
        print_note(f"problem: {problem.where}: {problem.message}")
    print_list(
        output,
        topics,
        [
            "NAME",
            "PARTITIONS",
            "SEGMENTS",
            "SEALED",
            "MESSAGES",
            "RATE",
            "READY",
            "DURABILITY",
            "KEY",
            "SCHEMA",
            "KAFKA",
            "UID",
        ],
        [
            (
                formatting.topic(t.name),
                str(t.partitions),
                str(len(t.segments)),
                str(t.sealed_segments),
                "unknown" if t.messages is None else str(t.messages),
                formatting.rate(t.messages_per_second, t.bytes_per_second),
                _ready(t),
                t.durability,
                t.key or "–",
                f"version {t.schema_version}" if t.schema else "–",
                t.kafka_name or "–",
                t.uid,
            )
            for t in topics
        ],
        right=["PARTITIONS", "SEGMENTS", "SEALED", "MESSAGES"],
        wide=["SEALED", "MESSAGES", "DURABILITY", "KEY", "SCHEMA", "KAFKA", "UID"],
    )


@app.command(cls=ListCommand)
@command
def describe(
    topic: TopicName,
    story: Annotated[
        bool, typer.Option("--story", help="Show what the leader did about the topic, and what came of it, instead.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show one topic: settings, columns, conditions, segments and the leader's last decisions about it.

    `smq topic export` prints its manifest, which `smq apply` takes.
    """
    with client() as connected:
        admin = connected.admin()
        if story:
            return _print_story(admin.story(topic), output)
        found, settings = admin.topic(topic), admin.settings(topic)
        decisions = [d for d in admin.decisions() if d.topic == found.name]
    if print_value(output, {"topic": found, "settings": settings, "decisions": decisions}):
        return
    _print_details(found)
    _print_heading("Settings")
    print_table(
        ["FIELD", "VALUE", ""],
        [(it.field, it.value, Text("default", style="dim") if it.is_default else "") for it in settings],
    )
    if found.schema:
        _print_heading(f"Columns (schema version {found.schema_version})")
        print_table(
            ["NAME", "TYPE", "NULL"], [(name, type_, "yes" if null else "no") for name, type_, null in found.schema]
        )
    if found.conditions:
        _print_heading("Conditions")
        print_table(
            ["TYPE", "STATUS", "REASON", "MESSAGE"], [(c.type, c.status, c.reason, c.message) for c in found.conditions]
        )
    _print_heading("Segments")
    now = datetime.now(UTC)
    print_table(
        ["NAME", "RANGE", "PHASE", "BROKERS", "OFFSETS", "OPENED", "AGE"],
        [
            (
                s.name,
                f"{s.start}-{s.stop}",
                phase(s.phase),
                ", ".join(s.brokers),
                format_offsets(s, found.ends),
                s.opened_because,
                formatting.age(s.opened_at, now),
            )
            for s in found.segments
        ],
    )
    if decisions:
        _print_heading("Last decisions")
        print_table(
            ["TIME", "ACTION", "SEGMENTS", "REASON"],
            [(formatting.clock(d.at), d.action, ", ".join(d.segments), d.reason) for d in decisions[-10:]],
        )


def _print_story(events: list[StoryEvent], output: Output) -> None:
    print_list(
        output,
        events,
        ["TIME", "LAST", "TIMES", "EVENT", "SEGMENT", "DETAIL"],
        [(format_time(e.at), format_time(e.last_at), str(e.times), e.kind, e.segment, e.detail) for e in events],
        right=["TIMES"],
        wide=["LAST"],
    )


@app.command(cls=ListCommand)
@command
def pins(topic: TopicName, output: OutputOption = Output.TABLE) -> None:
    """List the pins of readers: which jobs keep files that retention removed, and for how long."""
    with client() as connected, filer_named(connected, see=f"smq topic pins {topic}"):
        found = connected.admin().pins(topic)
    print_list(
        output,
        found,
        ["ID", "OWNER", "AGE", "EXPIRES IN"],
        [
            (
                pin.id,
                pin.owner or Text("unreadable", style="yellow"),
                formatting.span(pin.age_seconds),
                formatting.span(pin.expires_in_seconds)
                if pin.expires_in_seconds > 0
                else Text("expired", style="yellow"),
            )
            for pin in found
        ],
        right=["AGE", "EXPIRES IN"],
    )
    for pin in found:
        if pin.problem and output in (Output.TABLE, Output.WIDE):
            print_note(f"problem: {pin.problem}; it keeps all files until it is too old, so delete it if nobody reads")


@app.command()
@command
def delete(topic: TopicName, yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False) -> None:
    """Delete a topic. Its deletionPolicy decides about its files: Retain (default) or Delete."""
    with client() as connected:
        found = connected.admin().topic(topic)
        if not yes and not confirm(f"Delete topic {formatting.topic(found.name)}?"):
            raise CommandFailed("nothing was deleted")
        with filer_named(connected):
            connected.admin().delete(topic)
    out.print(f"topic {formatting.topic(found.name)} deleted")


@app.command("pause-scaling")
@command
def pause_scaling(topic: TopicName) -> None:
    """Pause autoscaling of a topic: no splits, merges or moves because of load. Manual commands still work."""
    with client() as connected:
        connected.admin().pause_scaling(topic)
        out.print(f"topic {topic}: autoscaling is paused until `smq topic resume-scaling {topic}`")


@app.command("resume-scaling")
@command
def resume_scaling(topic: TopicName) -> None:
    """Resume autoscaling of a topic."""
    with client() as connected:
        connected.admin().resume_scaling(topic)
        out.print(f"topic {topic}: autoscaling is active")


for _command in (create, export, verify, compact, recover, trim):
    app.command()(_command)
app.command(cls=ListCommand)(alter)


def _ready(t: TopicInfo) -> Text:
    return yes(t.ready) + Text(", autoscaling paused", style="yellow") if t.paused else yes(t.ready)


def _print_details(t: TopicInfo) -> None:
    details: dict[str, str | Text] = {
        "Name": formatting.topic(t.name),
        "Ready": yes(t.ready),
        "Autoscaling": Text("paused", style="yellow") if t.paused else "active",
        "Partitions": str(t.partitions),
        "Key": t.key or ("none: rows go to any partition" if t.schema else "the message's own key"),
        "Durability": t.durability,
        "Rate": formatting.rate(t.messages_per_second, t.bytes_per_second),
        "Sealed": formatting.plural(t.sealed_segments, "segment"),
        "Messages": _messages(t),
        "Uid": t.uid,
    }
    for name, value in details.items():
        out.print(Text.assemble((f"{name + ':':<13}", "bold"), value))


def _messages(t: TopicInfo) -> str:
    if t.messages is not None:
        return f"{t.messages:,}"
    unknown = [s.name for s in t.segments if s.end is None and s.name not in t.ends]
    return f"unknown: no broker has reported the end of {', '.join(unknown)}" if unknown else "unknown"


def _print_heading(text: str) -> None:
    out.print(Text(f"\n{text}", style="bold underline"))
