"""Confirms that an object is gone, before somebody is told that messages are lost.

A store may answer one request with 404 for an object that it has, for example a gateway whose metadata are not complete
yet. So one answer proves nothing about an object that must exist.
"""

from __future__ import annotations

import time

from smq_core.errors import StoreUnavailable
from smq_storage.object_store.store import ObjectMissing, Store

CONFIRM_AFTER_SECONDS = 0.5
"""Before the second read. Long enough for a request to reach another server of the store."""


def confirm_missing(store: Store, path: str) -> None:
    """Returns if a second read after a pause and a listing do not find the object either.

    Raises StoreUnavailable if one of them finds it, or if there is no answer: then nothing is known.
    """
    time.sleep(CONFIRM_AFTER_SECONDS)
    try:
        store.head(path)
    except ObjectMissing:
        if not is_listed(store, path):
            return
    raise hidden(path)


def is_listed(store: Store, path: str) -> bool:
    """Whether a listing has the object."""
    for found in store.list(path.rpartition("/")[0], start_after=path[:-1]):
        if found.path >= path:
            return found.path == path
    return False


def hidden(path: str) -> StoreUnavailable:
    """The error for an object that exists, although a read did not find it."""
    return StoreUnavailable(f"the filer answered that {path} does not exist, although it does: the read is repeated")
