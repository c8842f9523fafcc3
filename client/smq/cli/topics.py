"""`smq apply` and `smq topic …`."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
import yaml
from rich.text import Text

from smq.cli import words
from smq.cli.session import Failed, client, command, out
from smq.cli.tables import Output, phase, print_json, print_table, yes
from smq_core.errors import InvalidManifest

if TYPE_CHECKING:
    from smq import TopicInfo

app = typer.Typer(no_args_is_help=True, help="Topics: list, describe, delete, pause, resume.")

TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="A topic: name, or namespace/name.")]
OutputOption = Annotated[Output, typer.Option("-o", "--output", help="How to print it.")]


@command
def apply(
    files: Annotated[list[str], typer.Option("-f", "--filename", metavar="FILE|-", help="Manifests; - is stdin.")],
) -> None:
    """Create or change topics from manifests, the same ones as for kubectl apply."""
    manifests = [document for file in files for document in _documents(file)]
    with client() as connected:
        for manifest in manifests:
            applied = connected.admin().apply(manifest)
            out.print(f"topic {words.topic(applied.topic)} {applied.result}")


@app.command("list")
@command
def list_topics(output: OutputOption = Output.TABLE) -> None:
    """All topics."""
    with client() as connected:
        topics = connected.admin().topics()
    if output is Output.JSON:
        return print_json(topics)
    print_table(
        ["NAME", "PARTITIONS", "SEGMENTS", "RATE", "READY"],
        [
            (
                words.topic(t.name),
                str(t.partitions),
                str(len(t.segments)),
                words.rate(t.messages_per_second, t.bytes_per_second),
                _ready(t),
            )
            for t in topics
        ],
        right=["PARTITIONS", "SEGMENTS"],
    )


@app.command()
@command
def describe(topic: TopicName, output: OutputOption = Output.TABLE) -> None:
    """One topic: columns, conditions, segments, the leader's last decisions about it."""
    with client() as connected:
        admin = connected.admin()
        found = admin.topic(topic)
        decisions = [d for d in admin.decisions() if d.topic == found.name]
    if output is Output.JSON:
        return print_json({"topic": found, "decisions": decisions})
    _facts(found)
    if found.schema:
        _heading("Columns")
        print_table(
            ["NAME", "TYPE", "NULL"],
            [(name, type_, "yes" if null else "no") for name, type_, null in found.schema],
        )
    if found.conditions:
        _heading("Conditions")
        print_table(
            ["TYPE", "STATUS", "REASON", "MESSAGE"],
            [(c.type, str(c.status), c.reason, c.message) for c in found.conditions],
        )
    _heading("Segments")
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
                words.age(s.opened_at, now),
            )
            for s in found.segments
        ],
    )
    if decisions:
        _heading("Last decisions")
        print_table(
            ["TIME", "ACTION", "SEGMENTS", "REASON"],
            [(words.clock(d.at), d.action, ", ".join(d.segments), d.reason) for d in decisions[-10:]],
        )


@app.command()
@command
def delete(topic: TopicName, yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False) -> None:
    """Delete a topic. What becomes of its files is the topic's deletionPolicy: Retain (default) or Delete."""
    with client() as connected:
        found = connected.admin().topic(topic)
        if not yes and not _confirmed(f"Delete topic {words.topic(found.name)}?"):
            raise Failed("nothing was deleted")
        connected.admin().delete(topic)
    out.print(f"topic {words.topic(found.name)} deleted")


@app.command()
@command
def pause(topic: TopicName) -> None:
    """Let load change nothing of a topic: no splits, no merges, no moves. All else goes on, commands too."""
    with client() as connected:
        connected.admin().pause(topic)
        out.print(f"topic {topic}: autoscaling is paused until `smq topic resume {topic}`")


@app.command()
@command
def resume(topic: TopicName) -> None:
    """Let the segments of a topic follow the load again."""
    with client() as connected:
        connected.admin().resume(topic)
        out.print(f"topic {topic}: autoscaling is active")


def _ready(t: TopicInfo) -> Text:
    return yes(t.ready) + Text(", autoscaling paused", style="yellow") if t.paused else yes(t.ready)


def _documents(file: str) -> list[str]:
    """The manifests of one file, each as text of its own; a single one as it was written."""
    text = sys.stdin.read() if file == "-" else Path(file).read_text()
    try:
        documents = [d for d in yaml.safe_load_all(text) if d is not None]
    except yaml.YAMLError as error:
        raise InvalidManifest(f"{file} is not YAML: {error}") from None
    if len(documents) <= 1:
        return [text]
    return [yaml.safe_dump(d, sort_keys=False) for d in documents]


def _confirmed(question: str) -> bool:
    if not sys.stdin.isatty():
        raise Failed("add --yes: there is no terminal to ask on")
    return typer.confirm(question)


def _facts(t: TopicInfo) -> None:
    facts: dict[str, str | Text] = {
        "Name": words.topic(t.name),
        "Ready": yes(t.ready),
        "Autoscaling": Text("paused", style="yellow") if t.paused else "active",
        "Partitions": str(t.partitions),
        "Key": t.key or ("none: rows go to any partition" if t.schema else "the message's own key"),
        "Durability": t.durability,
        "Rate": words.rate(t.messages_per_second, t.bytes_per_second),
        "Sealed": words.plural(t.sealed_segments, "segment"),
        "Uid": t.uid,
    }
    for name, value in facts.items():
        out.print(Text.assemble((f"{name + ':':<13}", "bold"), value))


def _heading(text: str) -> None:
    out.print(Text(f"\n{text}", style="bold underline"))
