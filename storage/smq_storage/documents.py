"""Small JSON objects that are created once and then changed by compare-and-swap."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from smq_core.errors import SmqError
from smq_storage.conditional import Found, Look, Patience, Written, create, replace
from smq_storage.records import from_json, to_json
from smq_storage.store import ObjectMissing, Store

T = TypeVar("T")


class DocumentDamaged(SmqError):
    """A JSON object in the filer cannot be understood; a person has to look."""


def read_document(store: Store, path: str, kind: type[T]) -> tuple[T, str] | None:
    """The document and its etag, or None when there is none. Raises DocumentDamaged, StoreUnavailable."""
    try:
        return _look(kind)(store, path)
    except ObjectMissing:
        return None


def write_document(
    store: Store, path: str, value: T, etag: str | None, *, is_mine: Callable[[T], bool], patience: Patience
) -> str | None:
    """Creates (etag None) or replaces the document. Returns the new etag, None when another was there.

    Raises StoreUnavailable when the outcome is unknown.
    """
    look = _look(type(value))
    data = to_json(value)
    try:
        if etag is None:
            outcome = create(store, path, data, look=look, is_mine=is_mine, patience=patience)
        else:
            outcome = replace(store, path, data, etag, look=look, is_mine=is_mine, patience=patience)
    except ObjectMissing:
        return None
    return outcome.etag if isinstance(outcome, Written) else None


def _look(kind: type[T]) -> Look[T]:
    def look(store: Store, path: str) -> Found[T]:
        found = store.get(path)
        try:
            return Found(from_json(kind, found.data), found.etag)
        except ValueError as error:
            raise DocumentDamaged(f"{path} cannot be understood: {error}", path=path) from None

    return look
