"""_deleted/<uid>.json: the records of deleted topics, each written before the topic's name is free for another topic.

The record says when the topic was deleted and whether its data is deleted too. So any later leader finds what to
collect. If the manifest is re-created before the grace period ends, the topic is restored and its record is removed.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace

from smq_storage.catalog import paths
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.json_documents import read_document, write_document
from smq_storage.object_store.store import Store

DEFAULT_RETRY_POLICY = RetryPolicy()


@dataclass(frozen=True, slots=True)
class DeletedTopic:
    """A deleted topic. ``deleted_at`` is in microseconds; ``delete_data`` is its policy at that time.

    ``sealed`` means that every segment has its seal chunk, so nothing is acked any more.
    """

    topic: str
    uid: str
    deleted_at: int
    delete_data: bool
    writer: str = ""
    sealed: bool = False


def write_deleted_topic(
    store: Store, deleted_topic: DeletedTopic, retry_policy: RetryPolicy = DEFAULT_RETRY_POLICY
) -> None:
    """Writes the record unless there is one already, because the first one counts. Raises StoreUnavailable."""
    mine = replace(deleted_topic, writer=uuid.uuid4().hex)
    path = paths.deleted_topic(deleted_topic.uid)
    write_document(store, path, mine, None, is_mine=lambda it: it.writer == mine.writer, retry_policy=retry_policy)


def read_deleted_topic(store: Store, uid: str) -> DeletedTopic | None:
    """The record of that uid, or None. Raises StoreUnavailable."""
    found = read_document(store, paths.deleted_topic(uid), DeletedTopic)
    return found[0] if found else None


def mark_sealed(store: Store, uid: str, retry_policy: RetryPolicy = DEFAULT_RETRY_POLICY) -> None:
    """Sets ``sealed`` in the record, if there is one. Raises StoreUnavailable."""
    path = paths.deleted_topic(uid)
    while (found := read_document(store, path, DeletedTopic)) is not None and not found[0].sealed:
        mine = replace(found[0], writer=uuid.uuid4().hex, sealed=True)
        write_document(store, path, mine, found[1], is_mine=_written_by(mine.writer), retry_policy=retry_policy)


def _written_by(writer: str) -> Callable[[DeletedTopic], bool]:
    return lambda it: it.writer == writer


def list_deleted_topics(store: Store) -> list[str]:
    """The uids with a record, from a listing."""
    return [uid for o in store.list(paths.DELETED) if (uid := paths.deleted_topic_uid(o.path)) is not None]


def remove_deleted_topic(store: Store, uid: str) -> None:
    """Removes the record when nothing is left to collect. Raises StoreUnavailable."""
    store.delete(paths.deleted_topic(uid))
