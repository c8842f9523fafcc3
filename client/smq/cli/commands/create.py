"""`smq topic create`: a topic without a manifest file."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from smq.cli.broker_shortage import warn_of_manifest
from smq.cli.commands.topic_changes import note_retention
from smq.cli.connection.filer_watch import filer_named
from smq.cli.connection.session import client, command, out
from smq.cli.output import formatting
from smq.cli.setting_options import with_settings
from smq_core.errors import InvalidRequest
from smq_core.model.keyspace import Partitioner
from smq_core.model.names import full_topic_name


@command
@with_settings(defaults=True)
def create(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The new topic: name, or namespace/name.")],
    partitions: Annotated[
        int | None,
        typer.Option(min=1, help="Slots of the hash ring: the most segments it can ever have.", show_default="1024"),
    ] = None,
    partitioner: Annotated[
        Partitioner | None,
        typer.Option(
            help="How producers choose the partition of a key. With Kafka, partitions have Kafka's offsets.",
            show_default="Hash",
        ),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            "--column", metavar="NAME:TYPE[?]", help="A typed column, such as gate:uint8; with ? it may be null."
        ),
    ] = None,
    key: Annotated[str | None, typer.Option(metavar="COLUMN", help="The column that is the key.")] = None,
    kafka_name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What Kafka's clients call it, if TOPIC cannot have that name."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the manifest, and create nothing.")] = False,
    *,
    settings: dict[str, Any],
) -> None:
    """Create a topic. Messages are kept for 7 days unless --retention says otherwise.

    `smq topic alter` changes all but partitions, partitioner, key and the name for Kafka later. `smq example` prints
    manifests to start from instead.
    """
    import yaml  # imported late, because `smq topic list` loads this module, too

    from smq_storage.topic_manifests.parser import parse_manifest
    from smq_storage.topic_manifests.topic_settings import nested_fields

    full_topic_name(topic)  # raises for `/t`, which is no topic of a namespace without a name
    namespace, _, name = topic.rpartition("/")
    columns = [_column(text) for text in column or ()]
    given = _given(partitions=partitions, partitioner=partitioner, key=key, schema=columns or None)
    spec = given | nested_fields(settings | _given(**{"kafka.name": kafka_name}))
    manifest = {
        "apiVersion": "seaweedmq.io/v1alpha1",
        "kind": "Topic",
        "metadata": _given(name=name, namespace=namespace or None),
        "spec": spec,
    }
    parse_manifest(text := json.dumps(manifest))
    if dry_run:
        print(yaml.safe_dump(manifest, sort_keys=False), end="")
        return
    with client() as connected:
        admin = connected.admin()
        if any(formatting.topic(known.name) == formatting.topic(topic) for known in admin.topics()):
            raise InvalidRequest(
                f"topic {formatting.topic(topic)} is there already; `smq topic describe {formatting.topic(topic)}` "
                "shows it, and `smq topic alter` changes it"
            )
        with filer_named(connected):
            applied = admin.apply(text)
        out.print(f"topic {formatting.topic(applied.topic)} {applied.result}")
        note_retention(applied)
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
