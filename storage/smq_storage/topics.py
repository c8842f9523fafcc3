"""current.json and topic.json: which topic of a name is the living one, and what it should be.

Manifests, in which people write what a topic should be, are in ``manifest.py``: brokers do without them.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from smq_core.errors import Conflict
from smq_core.model import Topic
from smq_storage import paths
from smq_storage.conditional import Patience
from smq_storage.documents import read_document, write_document
from smq_storage.records import to_json
from smq_storage.store import Store

__all__ = [
    "Current",
    "put_current",
    "put_topic",
    "read_current",
    "read_living",
    "read_topic",
]

DEFAULT_PATIENCE = Patience()


@dataclass(frozen=True, slots=True)
class Current:
    """The uid of the living topic; empty: none lives. ``writer`` is unique for each write.

    ``owner`` names the world (a folder of manifests, a cluster) that wished it; empty: nobody said. ``given``: that
    world gave the uid, so a topic that is deleted there never comes back under it.
    """

    uid: str
    writer: str = ""
    owner: str = ""
    given: bool = False


def read_current(store: Store, topic: str) -> tuple[str, str] | None:
    """The uid of the living topic ``namespace/topic`` and the etag, or None when there never was one."""
    found = read_document(store, paths.current(topic), Current)
    return (found[0].uid, found[1]) if found else None


def read_living(store: Store, topic: str) -> Current | None:
    """All that is known of the living topic of that name, or None when there is none."""
    found = read_document(store, paths.current(topic), Current)
    return found[0] if found and found[0].uid else None


def put_current(
    store: Store,
    topic: str,
    uid: str,
    etag: str | None,
    patience: Patience = DEFAULT_PATIENCE,
    owner: str = "",
    given: bool = False,
) -> str:
    """Makes ``uid`` the living topic in the place of what has that etag (None: there must be none). Returns the etag.

    Raises Conflict when something else is there by now, StoreUnavailable when the outcome is unknown.
    """
    mine = Current(uid, uuid.uuid4().hex, owner, given)
    new = write_document(
        store, paths.current(topic), mine, etag, is_mine=lambda it: it.writer == mine.writer, patience=patience
    )
    if new is None:
        raise Conflict(f"another uid became the current one of {topic}: read it again")
    return new


def read_topic(store: Store, name: str, uid: str) -> Topic | None:
    """The topic as the leader last wrote it, or None. For readers that have neither a leader nor Kubernetes."""
    found = read_document(store, paths.topic_json(name, uid), Topic)
    return found[0] if found else None


def put_topic(store: Store, topic: Topic) -> None:
    """Writes topic.json, a projection of the Topic resource: the last writer wins. Raises StoreUnavailable."""
    store.put(paths.topic_json(topic.name, topic.uid), to_json(topic))
