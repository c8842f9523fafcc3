"""Adopts desired topics: gives each topic its uid once, and writes its spec to the filer.

These functions block on the store.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace

from smq_core.errors import Conflict, CorruptDocument, SpecRejected
from smq_core.model.entities import Column, Topic
from smq_core.model.schema_evolution import is_stale, newest_schema
from smq_operator.platform_port import DesiredTopic
from smq_storage.catalog import paths, sealed_index
from smq_storage.catalog.deleted_topics import (
    DeletedTopic,
    read_deleted_topic,
    remove_deleted_topic,
    write_deleted_topic,
)
from smq_storage.catalog.kafka_names import claim_kafka_name
from smq_storage.catalog.layouts import read_layout
from smq_storage.catalog.topic_traces import check_unused, missing
from smq_storage.catalog.topics import put_current, put_topic, read_current, read_current_topic, read_topic
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import Store
from smq_storage.topic_manifests.parser import check_change

_TRIES = 10


@dataclass(frozen=True, slots=True)
class AdoptedTopic:
    """A topic as the leader manages it. ``problem`` says which part of the desired state is rejected, and why.

    The spec of ``topic`` has version 0 of the schema, as the filer's does, because the layout has the later versions.
    ``columns`` are the desired ones, None if the schema is to stay as it is.
    """

    topic: Topic
    columns: tuple[Column, ...] | None
    problem: str | None = None


def adopt(
    store: Store, desired: DesiredTopic, retry_policy: RetryPolicy, now: int = 0, owner: str = ""
) -> AdoptedTopic:
    """Gives the topic its uid (the desired one, the filer's, or a new one) and writes its spec to the filer.

    If the desired spec changes what cannot change, the spec in the filer stays. ``now`` is in microseconds; ``owner``
    names the platform that owns the topic. Raises StoreUnavailable.
    """
    uid = _resolve_uid(store, desired, retry_policy, now, owner)
    if _has_deletion_record(store, uid):
        remove_deleted_topic(store, uid)
    known = read_topic(store, desired.name, uid)
    spec, problem = desired.spec, desired.problem
    columns: tuple[Column, ...] | None = spec.schema
    if known is None and sealed_index.load(store, desired.name, uid).exists:
        # Without it, nothing says which columns the oldest segments have, nor how many partitions the topic has.
        raise missing(paths.topic_json(desired.name, uid), "it has an index of segments")
    if known is not None:
        found = read_layout(store, desired.name, uid) if known.spec.schema else None
        newest = newest_schema(found[0] if found is not None else None, known.spec.schema)
        if is_stale(newest, desired.generation):
            spec, columns = replace(spec, schema=newest.columns), None
        try:
            check_change(known.spec, spec, newest)
        except SpecRejected as error:
            spec, columns, problem = known.spec, None, error.message
        spec = replace(spec, schema=known.spec.schema)
    topic = Topic(desired.name, uid, spec)
    if known != topic:
        put_topic(store, topic)
    if spec.kafka_name is not None and (other := claim_kafka_name(store, topic, retry_policy)) is not None:
        problem = problem or kafka_name_taken(spec.kafka_name, other)
    return AdoptedTopic(topic, columns, problem)


def kafka_name_taken(name: str, other: str) -> str:
    """Why a topic cannot have this name for Kafka's clients."""
    called = f"Kafka's clients call the topic {other} {name}"
    return f"spec.kafka.name: {called}: give this one another name, or delete that topic"


def _has_deletion_record(store: Store, uid: str) -> bool:
    try:
        return read_deleted_topic(store, uid) is not None
    except CorruptDocument:  # the topic lives, so whatever it says does not hold any more
        return True


def record_deletion(store: Store, name: str, uid: str, retry_policy: RetryPolicy, now: int) -> None:
    """Records in the filer that the topic was deleted at ``now`` (microseconds), with its deletion policy.

    Nothing else changes. ``adopt`` removes the record if the topic returns under this uid. Raises StoreUnavailable.
    """
    known = read_topic(store, name, uid)
    write_deleted_topic(store, DeletedTopic(name, uid, now, known is not None and known.spec.delete_data), retry_policy)


def retire(store: Store, name: str, uid: str, retry_policy: RetryPolicy, now: int = 0) -> None:
    """Frees the name of a deleted topic: a later topic of that name gets another uid. Raises StoreUnavailable."""
    for _ in range(_TRIES):
        current = read_current(store, name)
        if current is None or current[0] != uid:
            return
        # The record comes first, so that a free name always implies a record for garbage collection.
        record_deletion(store, name, uid, retry_policy, now)
        try:
            put_current(store, name, "", current[1], retry_policy)
            return
        except Conflict:
            continue
    raise Conflict(f"the uid of topic {name} changes again and again: is another leader running?")


def _resolve_uid(store: Store, desired: DesiredTopic, retry_policy: RetryPolicy, now: int, owner: str) -> str:
    for _ in range(_TRIES):
        current = read_current(store, desired.name)
        if current is None:
            check_unused(store, desired.name, desired.uid)
        uid, etag = current if current is not None else ("", None)
        wanted = desired.uid or uid or uuid.uuid4().hex
        uid_is_external = desired.uid is not None
        if uid == wanted:
            known = read_current_topic(store, desired.name)
            if known is not None and (not owner or known.owner == owner) and known.uid_is_external >= uid_is_external:
                return uid
        if uid and uid != wanted:
            record_deletion(store, desired.name, uid, retry_policy, now)
        try:
            put_current(store, desired.name, wanted, etag, retry_policy, owner, uid_is_external)
            return wanted
        except Conflict:
            continue
    raise Conflict(f"the uid of topic {desired.name} changes again and again: is another leader running?")
