"""_current.json and _topic.json: the uid of the living topic of a name, and its spec.

Topic manifests are another package, ``topic_manifests``, because brokers do without them.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from smq_core.errors import Conflict
from smq_core.model.entities import Topic
from smq_storage.catalog import paths
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.json_codec import to_json
from smq_storage.object_store.json_documents import read_document, read_unless_missing, write_document
from smq_storage.object_store.store import Store

__all__ = [
    "CurrentTopic",
    "put_current",
    "put_topic",
    "read_current",
    "read_current_topic",
    "read_topic",
    "topics_with_folders",
]

DEFAULT_RETRY_POLICY = RetryPolicy()


@dataclass(frozen=True, slots=True)
class CurrentTopic:
    """The uid of the living topic, empty if there is none. ``writer`` is unique for each write.

    ``owner`` names the platform (a folder of manifests, a cluster) with the topic's spec; empty if unknown. If
    ``uid_is_external``, that platform gave the uid, so a topic that is deleted there never comes back with it.
    """

    uid: str
    writer: str = ""
    owner: str = ""
    uid_is_external: bool = False


def read_current(store: Store, topic: str) -> tuple[str, str] | None:
    """The uid of the living topic ``namespace/topic`` and the etag, or None if there never was one."""
    found = read_unless_missing(store, paths.current(topic), CurrentTopic)
    return (found[0].uid, found[1]) if found else None


def read_current_topic(store: Store, topic: str) -> CurrentTopic | None:
    """The living topic of that name, or None if there is none."""
    found = read_unless_missing(store, paths.current(topic), CurrentTopic)
    return found[0] if found and found[0].uid else None


def topics_with_folders(store: Store) -> Iterator[str]:
    """The full names of all topics that are or were in the filer. Raises StoreUnavailable."""
    for namespace in store.folders(""):
        if not namespace.startswith("_"):
            yield from store.folders(namespace)


def put_current(
    store: Store,
    topic: str,
    uid: str,
    etag: str | None,
    retry_policy: RetryPolicy = DEFAULT_RETRY_POLICY,
    owner: str = "",
    uid_is_external: bool = False,
) -> str:
    """Makes ``uid`` the living topic in place of the one with that etag (None if there is none). Returns the etag.

    Raises Conflict if another one is there by now, StoreStateUnknown if the outcome is unknown.
    """
    mine = CurrentTopic(uid, uuid.uuid4().hex, owner, uid_is_external)
    new = write_document(
        store, paths.current(topic), mine, etag, is_mine=lambda it: it.writer == mine.writer, retry_policy=retry_policy
    )
    if new is None:
        raise Conflict(f"another uid became the current one of {topic}: read it again")
    return new


def read_topic(store: Store, name: str, uid: str) -> Topic | None:
    """The topic as the leader last wrote it, or None. For readers that have neither a leader nor Kubernetes."""
    found = read_document(store, paths.topic_json(name, uid), Topic)
    return found[0] if found else None


def put_topic(store: Store, topic: Topic) -> None:
    """Writes _topic.json, a copy of the Topic's spec. The last writer wins. Raises StoreUnavailable."""
    store.put(paths.topic_json(topic.name, topic.uid), to_json(topic))
