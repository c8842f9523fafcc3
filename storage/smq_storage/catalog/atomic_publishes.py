"""_publishes.json: the apps of a topic and their atomic publishes, changed only by compare-and-swap."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace

from smq_core.errors import Conflict, ProducerFenced
from smq_core.model.atomic_publish import AtomicPublishes
from smq_storage.catalog import paths
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.json_documents import read_document, write_document
from smq_storage.object_store.store import Store

MAX_ATTEMPTS = 20


def read_publishes(store: Store, topic: str, uid: str) -> AtomicPublishes:
    """The document; an empty one if there is none. Raises StoreUnavailable, CorruptDocument."""
    found = read_document(store, paths.publishes(topic, uid), AtomicPublishes)
    return found[0] if found is not None else AtomicPublishes()


def read_newest_publishes(store: Store, topic: str, uid: str, retry_policy: RetryPolicy) -> AtomicPublishes | None:
    """The document as it is now; None if it was changed meanwhile, or if what was read is older than the newest one.

    A compare-and-swap that changes nothing proves it, because a GET may return what was there a moment ago. A topic
    whose document does not exist gets none. Raises StoreUnavailable, CorruptDocument.
    """
    path = paths.publishes(topic, uid)
    found = read_document(store, path, AtomicPublishes)
    if found is None:
        return AtomicPublishes()
    same = replace(found[0], writer=uuid.uuid4().hex)
    is_newest = write_document(
        store, path, same, found[1], is_mine=lambda it: it.writer == same.writer, retry_policy=retry_policy
    )
    return same if is_newest is not None else None


def change_publishes(
    store: Store, topic: str, uid: str, change: Callable[[AtomicPublishes], AtomicPublishes], retry_policy: RetryPolicy
) -> AtomicPublishes:
    """Writes what ``change`` makes of the document, unless it returns the same one. Returns what the filer has then.

    ``change`` is called again if another writer was first, and perhaps after its own change was applied. It may raise
    errors, and nothing changes then. Its ProducerFenced counts only if a write without changes proves that what it was
    given is the newest: a GET may return what was there before the claim. Raises Conflict, StoreUnavailable, and
    StoreStateUnknown if the change may have been written.
    """
    path = paths.publishes(topic, uid)
    for _ in range(MAX_ATTEMPTS):
        found = read_document(store, path, AtomicPublishes)
        present, etag = found if found is not None else (AtomicPublishes(), None)
        fenced: ProducerFenced | None = None
        try:
            changed = change(present)
        except ProducerFenced as error:
            changed, fenced = replace(present), error
        if changed is present:
            return present
        new = replace(changed, writer=uuid.uuid4().hex)

        def is_mine(it: AtomicPublishes, writer: str = new.writer) -> bool:
            return it.writer == writer

        if write_document(store, path, new, etag, is_mine=is_mine, retry_policy=retry_policy) is not None:
            if fenced is not None:
                raise fenced
            return new
    raise Conflict(f"the publishes of {topic} change too often to be changed: try again")
