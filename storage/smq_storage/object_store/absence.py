"""Confirms that an object is gone, before somebody is told that messages are lost.

A store may answer one request with 404 for an object that it has, for example a gateway whose metadata are not complete
yet. So one answer proves nothing about an object that must exist.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import groupby

from smq_core.errors import StoreUnavailable
from smq_storage.object_store.store import ObjectMissing, Store

# Before the second read. Long enough for a request to reach another server of the store.
CONFIRM_AFTER_SECONDS = 0.5


def confirm_missing(store: Store, *paths: str) -> None:
    """Returns if a second read after a pause and a listing do not find any of the objects either.

    There is one pause for all of them, and one listing of each folder. Raises StoreUnavailable if an object is found,
    or if there is no answer: then nothing is known.
    """
    time.sleep(CONFIRM_AFTER_SECONDS)
    for path in paths:
        try:
            store.head(path)
        except ObjectMissing:
            continue
        raise hidden(path)
    for _, found in groupby(sorted(paths, key=lambda path: (_folder(path), path)), key=_folder):
        if listed := _first_listed(store, list(found)):
            raise hidden(listed)


def is_listed(store: Store, path: str) -> bool:
    """Whether a listing has the object."""
    return _first_listed(store, [path]) is not None


class SuspectedAbsences:
    """Objects that a read did not find. They are confirmed together, so that many cost no more pauses than one."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._paths: set[str] = set()

    def add(self, path: str) -> None:
        self._paths.add(path)

    def confirm(self) -> None:
        """As :func:`confirm_missing`, for all that were added since the last time."""
        if self._paths:
            confirm_missing(self._store, *self._paths)
            self._paths.clear()


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _first_listed(store: Store, ordered: Sequence[str]) -> str | None:
    """The first of these objects of one folder, in the order of their names, that a listing has."""
    sought = set(ordered)
    for found in store.list(_folder(ordered[0]), start_after=ordered[0][:-1]):
        if found.path in sought:
            return found.path
        if found.path > ordered[-1]:
            break
    return None


def hidden(path: str) -> StoreUnavailable:
    """The error for an object that exists, although a read did not find it."""
    return StoreUnavailable(f"the filer answered that {path} does not exist, although it does: the read is repeated")
