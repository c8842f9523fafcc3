"""Changes settings and columns of a topic on request: checks them, writes them into its spec, and waits for that."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from smq_core.errors import Conflict, InvalidRequest, SpecRejected, Unavailable
from smq_core.model.entities import Column, Topic, TopicSchema, TopicSpec
from smq_core.model.schema_evolution import evolve, newest_schema
from smq_operator.platform_port import Platform, manifest_of
from smq_operator.reconcile.manual_requests import LAYOUT_WRITE_TIMEOUT_SECONDS
from smq_operator.reconcile.topic_sync import TopicSync
from smq_operator.reconcile.topics.managed_topic import ManagedTopic
from smq_operator.reconcile.work_queue import WorkQueue
from smq_proto.v1 import admin_pb2
from smq_storage.topic_manifests.fields import MAX_COLUMNS
from smq_storage.topic_manifests.parser import (
    TopicManifest,
    check_change,
    parse_resource,
    schema_fields,
    spec_fields,
    to_resource,
)
from smq_storage.topic_manifests.spec_patch import SpecPatch, patched_spec
from smq_storage.topic_manifests.yaml_documents import check_size


@dataclass(frozen=True, slots=True)
class TopicChange:
    """A topic's manifest before and after a change, and the version of its schema that follows."""

    before: TopicManifest
    after: TopicManifest
    schema: TopicSchema


def check_request(request: admin_pb2.AlterTopicRequest) -> None:
    """Raises SpecRejected for a request that is larger than a topic's columns and settings, before it is converted."""
    check_size(request.ByteSize())
    if len(request.columns) > MAX_COLUMNS:
        raise SpecRejected(f"the request has {len(request.columns):,} columns, and a topic has at most {MAX_COLUMNS}")


async def alter_topic(
    managed: ManagedTopic,
    columns: Sequence[Column],
    version: int,
    settings: str,
    platform: Platform,
    sync: TopicSync,
    queue: WorkQueue,
    *,
    preview: bool,
) -> TopicChange:
    """Gives the topic these columns, which follow schema ``version``, and these settings, a patch of its spec as JSON.

    Returns when the topic has the settings, and the layout contains the new version, so that any later leader continues
    it. With ``preview`` it only checks. Raises SpecRejected, Conflict if the topic has another version by now, and
    Unavailable.
    """
    topic = managed.topic
    if topic is None or managed.layout is None:
        raise Unavailable(f"the leader has not read {managed.name} yet: try again")
    before = manifest_of(managed.desired)
    present = newest_schema(managed.layout, topic.spec.schema)
    # The checks of 400 columns take a good part of a second, in which the leader has to go on.
    patch, change = await asyncio.to_thread(_planned, topic, before, present, columns, version, settings)
    if preview or change.before == change.after:
        return change
    if "schema" in patch and _by_name(before.spec.schema) != _by_name(present.columns):
        raise Conflict(
            f"another change of the columns of {managed.name} is not carried out yet, and nothing was changed; "
            f"`smq topic describe {topic.short_name}` shows the conditions"
        )
    await platform.change_spec(managed.name, before.spec, patch)
    adopted = await sync.adopted(managed.name)
    if adopted.rejection is not None:
        raise SpecRejected(
            f"the spec of topic {managed.name} has the change, which is not in force: {adopted.rejection}"
        )
    queue.enqueue(managed)
    try:
        async with asyncio.timeout(LAYOUT_WRITE_TIMEOUT_SECONDS):
            wanted = change.schema.version
            while newest_schema(managed.layout, topic.spec.schema).version < wanted and not managed.deleted:
                await managed.wait_for_change()
    except TimeoutError:
        raise Unavailable(
            f"the spec of {managed.name} has the new columns, but its segments do not have them yet: no broker is "
            "available, or the filer does not respond. The leader continues when that is resolved"
        ) from None
    return change


def _planned(
    topic: Topic, before: TopicManifest, present: TopicSchema, columns: Sequence[Column], version: int, settings: str
) -> tuple[SpecPatch, TopicChange]:
    """The patch of the topic's spec, and what it changes. Raises the errors of :func:`alter_topic`."""
    patch = _parsed(settings)
    if _by_name(columns) != _by_name(present.columns):
        _check_columns(topic, present, columns, version)
        patch = {**patch, "schema": schema_fields(evolve(present, columns, topic.spec.key).columns)}
    _check_resets(patch, spec_fields(before.spec))
    unchanged = replace(before, spec=replace(before.spec, schema=present.columns))
    resource = to_resource(unchanged)
    after = parse_resource({**resource, "spec": patched_spec(resource["spec"], patch)})
    check_change(before.spec, replace(after.spec, schema=before.spec.schema))
    return patch, TopicChange(unchanged, after, evolve(present, after.spec.schema, topic.spec.key))


def _parsed(settings: str) -> SpecPatch:
    try:
        patch = json.loads(settings) if settings else {}
    except (ValueError, RecursionError):
        patch = None
    if not isinstance(patch, dict) or "schema" in patch:
        raise InvalidRequest('the settings must be a JSON object of fields, such as {"retention": {"age": "3d"}}')
    return patch


def _check_resets(patch: SpecPatch, known: Mapping[str, Any], path: str = "spec") -> None:
    """Raises SpecRejected if a field that shall get its default is none. Other fields are checked with their values."""
    for name, value in patch.items():
        inside = known.get(name)
        if value is None and name not in known:
            field = f"{path}.{name}"
            raise SpecRejected(f"{field}: there is no such field: `smq topic describe` lists all", field=field)
        if isinstance(value, Mapping):
            _check_resets(value, inside if isinstance(inside, Mapping) else {}, f"{path}.{name}")


def _check_columns(topic: Topic, present: TopicSchema, columns: Sequence[Column], version: int) -> None:
    if not present.columns:
        raise InvalidRequest(f"{topic.name} was created without a schema, and cannot get one: make another topic")
    if present.version != version:
        raise Conflict(
            f"{topic.name} has schema version {present.version}, not {version} any more: look at its columns again"
        )
    check_change(
        TopicSpec(key=topic.spec.key, schema=present.columns),
        TopicSpec(key=topic.spec.key, schema=tuple(columns)),
        present,
    )


def _by_name(columns: Sequence[Column]) -> dict[str, Column]:
    return {column.name: column for column in columns}
