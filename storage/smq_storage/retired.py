"""_deleted/<uid>.json: topics that live no more, written down before their name is free for another.

The record says since when, and what is to become of the data, so that whoever leads finds what is to be collected
without having seen the deletion. A topic that lives again (its manifest came back in time) has its record withdrawn.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace

from smq_storage import paths
from smq_storage.conditional import Patience
from smq_storage.documents import read_document, write_document
from smq_storage.store import Store

DEFAULT_PATIENCE = Patience()


@dataclass(frozen=True, slots=True)
class Retired:
    """A topic that was deleted. ``retired_at`` is in microseconds; ``delete_data`` is its policy when it was.

    ``sealed``: every segment of it has its seal chunk, so nothing is acked any more.
    """

    topic: str
    uid: str
    retired_at: int
    delete_data: bool
    writer: str = ""
    sealed: bool = False


def write_retired(store: Store, retired: Retired, patience: Patience = DEFAULT_PATIENCE) -> None:
    """Writes the record, unless there is one: the first one counts. Raises StoreUnavailable."""
    mine = replace(retired, writer=uuid.uuid4().hex)
    path = paths.retired(retired.uid)
    write_document(store, path, mine, None, is_mine=lambda it: it.writer == mine.writer, patience=patience)


def read_retired(store: Store, uid: str) -> Retired | None:
    """The record of that uid, or None. Raises StoreUnavailable."""
    found = read_document(store, paths.retired(uid), Retired)
    return found[0] if found else None


def mark_sealed(store: Store, uid: str, patience: Patience = DEFAULT_PATIENCE) -> None:
    """Writes down that every segment is sealed, where there is a record. Raises StoreUnavailable."""
    path = paths.retired(uid)
    while (found := read_document(store, path, Retired)) is not None and not found[0].sealed:
        mine = replace(found[0], writer=uuid.uuid4().hex, sealed=True)
        write_document(store, path, mine, found[1], is_mine=_by(mine.writer), patience=patience)


def _by(writer: str) -> Callable[[Retired], bool]:
    return lambda it: it.writer == writer


def list_retired(store: Store) -> list[str]:
    """The uids with a record, from a listing."""
    return [uid for o in store.list(paths.RETIRED) if (uid := paths.retired_uid(o.path)) is not None]


def withdraw_retired(store: Store, uid: str) -> None:
    """There is nothing to be collected, or nothing any more. Raises StoreUnavailable."""
    store.delete(paths.retired(uid))
