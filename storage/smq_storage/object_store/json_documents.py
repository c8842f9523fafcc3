"""Small JSON objects that are created once and then changed by compare-and-swap."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from smq_core.errors import CorruptDocument
from smq_storage.object_store.absence import hidden, is_listed
from smq_storage.object_store.conditional_writes import (
    ReadBack,
    ReadBackResult,
    RetryPolicy,
    WriteSucceeded,
    create,
    replace,
)
from smq_storage.object_store.json_codec import from_json, to_json
from smq_storage.object_store.store import ObjectMissing, Store

T = TypeVar("T")


def read_document(
    store: Store, path: str, kind: type[T], decode: Callable[[bytes], T] | None = None
) -> tuple[T, str] | None:
    """The document and its etag, or None if there is none. Raises CorruptDocument, StoreUnavailable.

    ``decode`` makes the value from JSON in place of ``from_json``, for example because it keeps some of them.
    """
    try:
        return _json_reader(kind, decode)(store, path)
    except ObjectMissing:
        return None


def read_unless_missing(
    store: Store, path: str, kind: type[T], decode: Callable[[bytes], T] | None = None
) -> tuple[T, str] | None:
    """As ``read_document``, for documents whose absence has consequences: None only if a listing lacks it as well."""
    found = read_document(store, path, kind, decode)
    if found is None and is_listed(store, path):
        found = read_document(store, path, kind, decode)  # it may have been created meanwhile
        if found is None:
            raise hidden(path)
    return found


def write_document(
    store: Store,
    path: str,
    value: T,
    etag: str | None,
    *,
    kind: type[T] | None = None,
    is_mine: Callable[[T], bool],
    retry_policy: RetryPolicy,
) -> str | None:
    """Creates (etag None) or replaces the document. Returns the new etag, or None if another one is there.

    ``kind`` is that of the documents that may be there, if it is not the value's own.
    Raises StoreStateUnknown if it may or may not have been written.
    """
    read_back = _json_reader(kind or type(value))
    data = to_json(value)
    try:
        if etag is None:
            outcome = create(store, path, data, read_back=read_back, is_mine=is_mine, retry_policy=retry_policy)
        else:
            outcome = replace(store, path, data, etag, read_back=read_back, is_mine=is_mine, retry_policy=retry_policy)
    except ObjectMissing:
        return None
    return outcome.etag if isinstance(outcome, WriteSucceeded) else None


def _json_reader(kind: type[T], decode: Callable[[bytes], T] | None = None) -> ReadBack[T]:
    def read_back(store: Store, path: str) -> ReadBackResult[T]:
        found = store.get(path)
        try:
            value = from_json(kind, found.data) if decode is None else decode(bytes(found.data))
            return ReadBackResult(value, found.etag)
        except ValueError as error:
            raise CorruptDocument(f"{path} cannot be understood: {error}", path=path) from None

    return read_back
