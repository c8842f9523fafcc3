"""Changes the columns of a topic on request: checks them, writes them into its spec, and waits for the new version."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from smq_core.errors import Conflict, InvalidRequest, SpecRejected, Unavailable
from smq_core.model.entities import Column, Topic, TopicSchema, TopicSpec
from smq_core.model.schema_evolution import evolve, newest_schema, violations
from smq_operator.platform_port import Platform
from smq_operator.reconcile.manual_requests import LAYOUT_WRITE_TIMEOUT_SECONDS
from smq_operator.reconcile.topic_sync import TopicSync
from smq_operator.reconcile.topics.managed_topic import ManagedTopic
from smq_operator.reconcile.work_queue import WorkQueue
from smq_storage.topic_manifests.parser import parse_manifest, to_manifest


async def alter_topic(
    managed: ManagedTopic,
    columns: Sequence[Column],
    version: int,
    platform: Platform,
    sync: TopicSync,
    queue: WorkQueue,
    *,
    preview: bool,
) -> TopicSchema:
    """Gives the topic these columns, which follow schema ``version``. Returns the version that has them.

    Returns when the layout contains it, so that any later leader continues it. With ``preview`` it only checks. Raises
    SpecRejected, Conflict if the topic has another version by now, and Unavailable.
    """
    topic = managed.topic
    if topic is None or managed.layout is None:
        raise Unavailable(f"the leader has not read {managed.name} yet: try again")
    present = newest_schema(managed.layout, topic.spec.schema)
    new = _checked(topic, present, columns, version)
    if preview or new is present:
        return new
    if _by_name(managed.desired.spec.schema) != _by_name(present.columns):
        raise Conflict(
            f"another change of the columns of {managed.name} is not carried out yet, and nothing was changed; "
            f"`smq topic describe {topic.short_name}` shows the conditions"
        )
    await platform.set_schema(managed.name, managed.desired.spec.schema, new.columns)
    sync.sync()
    queue.enqueue(managed)
    try:
        async with asyncio.timeout(LAYOUT_WRITE_TIMEOUT_SECONDS):
            while newest_schema(managed.layout, topic.spec.schema).version < new.version and not managed.deleted:
                await managed.wait_for_change()
    except TimeoutError:
        raise Unavailable(
            f"the spec of {managed.name} has the new columns, but its segments do not have them yet: no broker is "
            "available, or the filer does not respond. The leader continues when that is resolved"
        ) from None
    return new


def _checked(topic: Topic, present: TopicSchema, columns: Sequence[Column], version: int) -> TopicSchema:
    if not present.columns:
        raise InvalidRequest(f"{topic.name} was created without a schema, and cannot get one: make another topic")
    if present.version != version:
        raise Conflict(
            f"{topic.name} has schema version {present.version}, not {version} any more: look at its columns again"
        )
    if problems := violations(present, columns, topic.spec.key):
        raise SpecRejected("\n".join(problems), field="spec.schema")
    alone = TopicSpec(key=topic.spec.key, schema=tuple(columns))
    parse_manifest(to_manifest(replace(topic, spec=alone)))  # checks names and types
    return evolve(present, columns, topic.spec.key)


def _by_name(columns: Sequence[Column]) -> dict[str, Column]:
    return {column.name: column for column in columns}
