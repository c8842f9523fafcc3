"""`smq apply` and `smq topic …`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from smq.cli.broker_shortage import warn_of_manifest
from smq.cli.commands.compact import compact
from smq.cli.commands.create import create
from smq.cli.commands.verify import verify
from smq.cli.connection.filer_watch import filer_named
from smq.cli.connection.session import CommandFailed, TopicName, client, command, confirm, out, print_error, print_note
from smq.cli.output import formatting
from smq.cli.output.rendering import ListCommand, Output, OutputOption, phase, print_list, print_table, print_value, yes
from smq_core.errors import InvalidRequest

if TYPE_CHECKING:
    from smq import AlteredTopic, TopicInfo

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Topics: create, list, describe, alter, delete, and more."
)


@command
def apply(
    files: Annotated[
        list[str], typer.Option("-f", "--filename", metavar="FILE|-", help="A topic manifest file; - is stdin.")
    ],
) -> None:
    """Create or change topics from manifests, as kubectl apply does.

    Nothing is applied if a file is not YAML. A manifest that is refused does not keep the others from being applied.
    """
    from smq.cli.files.manifest_files import read_manifests  # imported late: it loads YAML

    manifests = [manifest for file in files for manifest in read_manifests(file)]
    refused = False
    with client() as connected:
        for manifest in manifests:
            try:
                with filer_named(connected):
                    applied = connected.admin().apply(manifest.text)
            except InvalidRequest as error:
                print_error(manifest.locate(error.message))
                refused = True
            else:
                out.print(f"topic {formatting.topic(applied.topic)} {applied.result}")
                if applied.result != "unchanged":
                    warn_of_manifest(connected.admin(), manifest.text)
    if refused:
        raise typer.Exit(1)


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
        ["NAME", "PARTITIONS", "SEGMENTS", "SEALED", "RATE", "READY", "DURABILITY", "KEY", "SCHEMA", "UID"],
        [
            (
                formatting.topic(t.name),
                str(t.partitions),
                str(len(t.segments)),
                str(t.sealed_segments),
                formatting.rate(t.messages_per_second, t.bytes_per_second),
                _ready(t),
                t.durability,
                t.key or "–",
                f"version {t.schema_version}" if t.schema else "–",
                t.uid,
            )
            for t in topics
        ],
        right=["PARTITIONS", "SEGMENTS", "SEALED"],
        wide=["SEALED", "DURABILITY", "KEY", "SCHEMA", "UID"],
    )


@app.command(cls=ListCommand)
@command
def describe(topic: TopicName, output: OutputOption = Output.TABLE) -> None:
    """Show one topic: columns, conditions, segments and the leader's last decisions about it."""
    with client() as connected:
        admin = connected.admin()
        found = admin.topic(topic)
        decisions = [d for d in admin.decisions() if d.topic == found.name]
    if print_value(output, {"topic": found, "decisions": decisions}):
        return
    _print_details(found)
    if found.schema:
        _print_heading(f"Columns (schema version {found.schema_version})")
        print_table(
            ["NAME", "TYPE", "NULL"],
            [(name, type_, "yes" if null else "no") for name, type_, null in found.schema],
        )
    if found.conditions:
        _print_heading("Conditions")
        print_table(
            ["TYPE", "STATUS", "REASON", "MESSAGE"],
            [(c.type, c.status, c.reason, c.message) for c in found.conditions],
        )
    _print_heading("Segments")
    now = time.time_ns() // 1000
    print_table(
        ["NAME", "RANGE", "PHASE", "BROKERS", "OPENED", "AGE"],
        [
            (
                s.name,
                f"{s.start}-{s.stop}",
                phase(s.phase),
                ", ".join(s.brokers),
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
                formatting.age(0, pin.age),
                formatting.age(0, pin.expires_in) if pin.expires_in > 0 else Text("expired", style="yellow"),
            )
            for pin in found
        ],
        right=["AGE", "EXPIRES IN"],
    )
    for pin in found:
        if pin.problem and output in (Output.TABLE, Output.WIDE):
            print_note(f"problem: {pin.problem}; it keeps all files until it is too old, so delete it if nobody reads")


@app.command(cls=ListCommand)
@command
def alter(
    topic: TopicName,
    add: Annotated[
        list[str] | None, typer.Option("--add-column", metavar="NAME:TYPE", help="Add a nullable column.")
    ] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option("--drop-column", metavar="NAME", help="Drop a nullable column; its name is never used again."),
    ] = None,
    widen: Annotated[
        list[str] | None,
        typer.Option("--widen-column", metavar="NAME:TYPE", help="To a wider integer, or float32 to float64."),
    ] = None,
    nullable: Annotated[
        list[str] | None, typer.Option("--make-nullable", metavar="NAME", help="Let the column be null.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Change the columns of a topic, after a preview. Producers and consumers go on.

    Each option can be repeated. All changes of one command make one new version of the schema.
    """
    changes = {
        "add_columns": _types_by_name(add, "--add-column"),
        "drop_columns": drop or [],
        "widen_columns": _types_by_name(widen, "--widen-column"),
        "make_nullable": nullable or [],
    }
    if not any(changes.values()):
        raise InvalidRequest("nothing to change: add --add-column, --drop-column, --widen-column or --make-nullable")
    with client() as connected:
        admin = connected.admin()
        done = admin.alter_topic(topic, **changes, preview=True)  # type: ignore[arg-type]
        name = formatting.topic(done.topic)
        if not dry_run and done.changes:
            if output in (Output.TABLE, Output.WIDE):
                _print_changes(done)
            if not yes and not confirm(f"Change topic {name}?"):
                raise CommandFailed("nothing was changed")
            with filer_named(connected, see=f"smq topic describe {name}"):
                done = admin.alter_topic(topic, **changes)  # type: ignore[arg-type]
    if print_value(output, done):
        return
    if dry_run:
        _print_changes(done)
    elif done.changes:
        out.print(f"topic {name} has schema version {done.schema_version} now")
    else:
        out.print(f"topic {name} unchanged")


def _types_by_name(options: list[str] | None, option: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in options or []:
        name, colon, type_ = text.partition(":")
        if not (name and colon and type_):
            raise InvalidRequest(f"{option} needs NAME:TYPE, such as gate:uint8, not {text!r}")
        if name in found:
            raise InvalidRequest(f"{option} names column {name} twice")
        found[name] = type_.strip()
    return found


def _print_changes(altered: AlteredTopic) -> None:
    out.print(f"topic {formatting.topic(altered.topic)}, schema version {altered.schema_version}:")
    for change in altered.changes or ("nothing changes",):
        out.print(f"  {change}")


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


@app.command()
@command
def pause(topic: TopicName) -> None:
    """Pause autoscaling of a topic: no splits, merges or moves because of load. Manual commands still work."""
    with client() as connected:
        connected.admin().pause(topic)
        out.print(f"topic {topic}: autoscaling is paused until `smq topic resume {topic}`")


@app.command()
@command
def resume(topic: TopicName) -> None:
    """Resume autoscaling of a topic."""
    with client() as connected:
        connected.admin().resume(topic)
        out.print(f"topic {topic}: autoscaling is active")


for _command in (create, verify, compact):
    app.command()(_command)


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
        "Uid": t.uid,
    }
    for name, value in details.items():
        out.print(Text.assemble((f"{name + ':':<13}", "bold"), value))


def _print_heading(text: str) -> None:
    out.print(Text(f"\n{text}", style="bold underline"))
