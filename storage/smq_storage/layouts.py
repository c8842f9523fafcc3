"""layout.json: which segments a topic has, changed only by one compare-and-swap at a time."""

from __future__ import annotations

from smq_core.errors import Conflict
from smq_core.model import Layout
from smq_storage import paths
from smq_storage.conditional import Patience
from smq_storage.documents import read_document, write_document
from smq_storage.store import Store

DEFAULT_PATIENCE = Patience()


def read_layout(store: Store, topic: str, uid: str) -> tuple[Layout, str] | None:
    """The layout and its etag, or None when the topic has none yet. Raises StoreUnavailable."""
    return read_document(store, paths.layout(topic, uid), Layout)


def put_layout(store: Store, layout: Layout, etag: str | None, patience: Patience = DEFAULT_PATIENCE) -> str:
    """Writes the layout over the one with that etag (None: there must be none). Returns the new etag.

    ``layout.writer`` must be unique for this call. Raises Conflict when the layout is another one by now (this write
    may have been applied before that: read again), StoreUnavailable when the outcome is unknown.
    """
    if not layout.writer:
        raise ValueError("a layout needs a writer: its writer must recognise it")
    path = paths.layout(layout.topic, layout.uid)
    new = write_document(store, path, layout, etag, is_mine=lambda it: it.writer == layout.writer, patience=patience)
    if new is None:
        raise Conflict(f"the layout of {layout.topic} was changed by another leader: read it again")
    return new
