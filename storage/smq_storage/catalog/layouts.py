"""_layout.json: the segments of a topic, changed only by compare-and-swap."""

from __future__ import annotations

from smq_core.errors import Conflict
from smq_core.model.entities import Layout
from smq_storage.catalog import paths
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.json_documents import read_document, write_document
from smq_storage.object_store.store import Store

DEFAULT_RETRY_POLICY = RetryPolicy()


def read_layout(store: Store, topic: str, uid: str) -> tuple[Layout, str] | None:
    """The layout and its etag, or None when the topic has none yet. Raises StoreUnavailable."""
    return read_document(store, paths.layout(topic, uid), Layout)


def put_layout(store: Store, layout: Layout, etag: str | None, retry_policy: RetryPolicy = DEFAULT_RETRY_POLICY) -> str:
    """Replaces the layout with that etag, or creates it (None). Returns the new etag.

    ``layout.writer`` must be unique for this call. Raises Conflict if the filer has another layout by now; this write
    may have been applied before that, so read again. Raises StoreStateUnknown if the outcome is unknown.
    """
    if not layout.writer:
        raise ValueError("a layout needs a writer, by which it is recognised")
    path = paths.layout(layout.topic, layout.uid)
    new = write_document(
        store, path, layout, etag, is_mine=lambda it: it.writer == layout.writer, retry_policy=retry_policy
    )
    if new is None:
        raise Conflict(f"the layout of {layout.topic} was changed by another leader: read it again")
    return new
