"""_kafka_groups/<group>.json: the offsets of a group of Kafka clients, changed by compare-and-swap of its coordinator.

The file stays when the group is deleted, as that of a native group does, so that generations never go back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from smq_core.errors import Conflict
from smq_core.kafka_groups.consumer.member import ConsumerMember
from smq_core.kafka_groups.offsets import TopicOffsets
from smq_storage.catalog import paths
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.json_documents import read_document, read_unless_missing, write_document
from smq_storage.object_store.store import Store

# Kafka's names of the protocols of groups.
CLASSIC, CONSUMER = "classic", "consumer"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredKafkaGroup:
    """``owner`` is the incarnation of the coordinator, and ``session`` the state in its memory that members know.

    ``writer`` is unique for each write. ``generation`` is the highest that members may know. ``offsets`` are by the uid
    of their topics. ``active_at`` is the time of the last write in microseconds, by the writer's clock; 0 if unknown.
    ``group_type`` is CLASSIC or CONSUMER, the protocol of its last members. ``members`` are only those of the latter.
    """

    name: str
    generation: int = 0
    protocol_type: str = ""
    offsets: Mapping[str, TopicOffsets] = field(default_factory=dict)
    owner: str = ""
    session: str = ""
    writer: str = ""
    active_at: int = 0
    deleted: bool = False
    group_type: str = CLASSIC
    members: tuple[ConsumerMember, ...] = ()


def read_kafka_group(store: Store, name: str) -> tuple[StoredKafkaGroup, str] | None:
    """The group and its etag, or None if it was never stored. Raises StoreUnavailable, CorruptDocument."""
    return read_unless_missing(store, paths.kafka_group(name), StoredKafkaGroup)


def read_kafka_group_at(store: Store, path: str) -> StoredKafkaGroup | None:
    """The group with this document, or None if there is none. Raises StoreUnavailable, CorruptDocument."""
    found = read_unless_missing(store, path, StoredKafkaGroup)
    return found[0] if found is not None else None


def put_kafka_group(store: Store, group: StoredKafkaGroup, etag: str | None, retry_policy: RetryPolicy) -> str:
    """Replaces the document with that etag, or creates it (None). Returns the new etag.

    Raises Conflict if another one is there, StoreStateUnknown if the outcome is unknown.
    """
    if not group.writer:
        raise ValueError("a group of Kafka clients needs a writer, by which it is recognised")
    new = write_document(
        store,
        paths.kafka_group(group.name),
        group,
        etag,
        is_mine=lambda it: it.writer == group.writer,
        retry_policy=retry_policy,
    )
    if new is None:
        raise Conflict(f"group {group.name!r} was changed by another coordinator: read it again")
    return new


def list_kafka_groups(store: Store) -> Iterator[StoredKafkaGroup]:
    """All groups, also deleted ones. Reads each of them. Raises StoreUnavailable, CorruptDocument."""
    for listed in store.list(paths.KAFKA_GROUPS):
        found = read_document(store, listed.path, StoredKafkaGroup)
        if found is not None:
            yield found[0]
