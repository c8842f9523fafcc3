"""_layout.json: the segments of a topic, changed only by compare-and-swap.

A layout whose topic's schema has changed is stored inside a separate field. A release that does not know
versions cannot read it then. It would drop them with its next PUT otherwise, and open segments with columns of one
version for messages of another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, cast

from smq_core.errors import Conflict
from smq_core.model.entities import Layout
from smq_storage.catalog import paths
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.json_documents import read_unless_missing, write_document
from smq_storage.object_store.store import Store

DEFAULT_RETRY_POLICY = RetryPolicy()


@dataclass(frozen=True, slots=True)
class _EvolvedLayout:
    layout_with_schema_versions: Layout


_Document: TypeAlias = Layout | _EvolvedLayout
_KIND = cast("type[_Document]", _Document)


def read_layout(store: Store, topic: str, uid: str) -> tuple[Layout, str] | None:
    """The layout and its etag, or None when the topic has none yet. Raises StoreUnavailable."""
    found = read_unless_missing(store, paths.layout(topic, uid), _KIND)
    return (_layout(found[0]), found[1]) if found is not None else None


def put_layout(store: Store, layout: Layout, etag: str | None, retry_policy: RetryPolicy = DEFAULT_RETRY_POLICY) -> str:
    """Replaces the layout with that etag, or creates it (None). Returns the new etag.

    ``layout.writer`` must be unique for this call. Raises Conflict if the filer has another layout by now; this write
    may have been applied before that, so read again. Raises StoreStateUnknown if the outcome is unknown.
    """
    if not layout.writer:
        raise ValueError("a layout needs a writer, by which it is recognised")
    path = paths.layout(layout.topic, layout.uid)
    document: _Document = _EvolvedLayout(layout) if layout.schemas and layout.schemas[-1].version else layout
    new = write_document(
        store,
        path,
        document,
        etag,
        kind=_KIND,
        is_mine=lambda it: _layout(it).writer == layout.writer,
        retry_policy=retry_policy,
    )
    if new is None:
        raise Conflict(f"the layout of {layout.topic} was changed by another leader: read it again")
    return new


def _layout(document: _Document) -> Layout:
    return document.layout_with_schema_versions if isinstance(document, _EvolvedLayout) else document
