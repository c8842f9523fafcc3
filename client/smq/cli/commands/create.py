"""`smq topic create`: a topic without a manifest file."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated, Any

import typer

from smq.cli.broker_shortage import warn_of_manifest
from smq.cli.connection.filer_watch import filer_named
from smq.cli.connection.session import client, command, out
from smq.cli.output import formatting
from smq_core.errors import InvalidRequest


class Durability(StrEnum):
    """When a message is acked."""

    REPLICATED = "Replicated"
    STORED = "Stored"


@command
def create(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The new topic: name, or namespace/name.")],
    partitions: Annotated[
        int | None,
        typer.Option(min=1, help="Slots of the hash ring: the most segments it can ever have.", show_default="1024"),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            "--column", metavar="NAME:TYPE[?]", help="A typed column, such as gate:uint8; with ? it may be null."
        ),
    ] = None,
    key: Annotated[str | None, typer.Option(metavar="COLUMN", help="The column that is the key.")] = None,
    durability: Annotated[
        Durability | None,
        typer.Option(help="Acked when all replicas have it, or when it is in the filer.", show_default="Replicated"),
    ] = None,
    replicas: Annotated[
        int | None, typer.Option(min=1, help="Brokers that hold the newest messages.", show_default="2")
    ] = None,
    min_segments: Annotated[int | None, typer.Option(min=1, help="The least number of segments.")] = None,
    max_segments: Annotated[int | None, typer.Option(min=1, help="The most segments under load.")] = None,
    retention: Annotated[
        str | None, typer.Option(metavar="AGE", help="How long messages are kept, such as 7d; or unlimited.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the manifest, and create nothing.")] = False,
) -> None:
    """Create a topic. What has no option is in a manifest: see `smq example`, and `smq apply`."""
    namespace, _, name = topic.rpartition("/")
    spec: dict[str, Any] = {
        "partitions": partitions,
        "key": key,
        "schema": [_column(text) for text in column or ()] or None,
        "durability": durability and durability.value,
        "replicas": replicas,
        "segments": _given(min=min_segments, max=max_segments) or None,
        "retention": _given(age=retention) or None,
    }
    manifest = {
        "apiVersion": "seaweedmq.io/v1alpha1",
        "kind": "Topic",
        "metadata": _given(name=name, namespace=namespace or None),
        "spec": _given(**spec),
    }
    if dry_run:
        import yaml

        print(yaml.safe_dump(manifest, sort_keys=False), end="")
        return
    with client() as connected:
        admin = connected.admin()
        if any(formatting.topic(known.name) == formatting.topic(topic) for known in admin.topics()):
            raise InvalidRequest(
                f"topic {formatting.topic(topic)} is there already; `smq topic describe {formatting.topic(topic)}` "
                "shows it, and `smq apply -f` changes it"
            )
        text = json.dumps(manifest)
        with filer_named(connected):
            applied = admin.apply(text)
        out.print(f"topic {formatting.topic(applied.topic)} {applied.result}")
        warn_of_manifest(admin, text)


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _column(text: str) -> dict[str, Any]:
    name, colon, type_ = text.partition(":")
    if not (name and colon and type_.strip("?")):
        raise InvalidRequest(
            f"--column needs NAME:TYPE, such as gate:uint8, or gate:uint8? if it may be null: {text!r}"
        )
    column: dict[str, Any] = {"name": name, "type": type_.removesuffix("?").strip()}
    return column | ({"nullable": True} if type_.endswith("?") else {})
