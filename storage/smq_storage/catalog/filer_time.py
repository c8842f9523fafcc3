"""The filer's own time, which says how old an object is without trusting the clock of the process that asks."""

from __future__ import annotations

import uuid
from datetime import datetime

from smq_core.errors import StoreUnavailable
from smq_storage.catalog import paths
from smq_storage.object_store.store import ObjectMissing, Store

_SECOND_US = 1_000_000
ATTEMPTS = 5


def read_filer_time(store: Store) -> int:
    """The filer's time in microseconds: the time of the last change of an object that is written now.

    It is never later than the filer's time when this returns, and earlier by at most the call's duration and the
    second to which stores round. An answer with another content may be out of date by any time, so it does not count.
    Raises StoreUnavailable.
    """
    for _ in range(ATTEMPTS):
        mine = b'{"writer":"%s"}' % uuid.uuid4().hex.encode()
        store.put(paths.CLOCK, mine)
        try:
            found = store.get_tail(paths.CLOCK, len(mine))
        except ObjectMissing:
            continue
        if bytes(found.data) == mine:
            return microseconds(found.modified)
    raise StoreUnavailable(f"the filer does not return {paths.CLOCK} as it was just written", path=paths.CLOCK)


def modified_at(store: Store, path: str) -> int:
    """When the object was changed last, in microseconds of the filer's time. Raises ObjectMissing."""
    return microseconds(store.head(path).modified)


def modified_at_or_none(store: Store, path: str) -> int | None:
    """As :func:`modified_at`; None if there is no such object."""
    try:
        return modified_at(store, path)
    except ObjectMissing:
        return None


def microseconds(modified: datetime) -> int:
    """The time of an object's last change, as a listing or an answer has it."""
    return round(modified.timestamp() * _SECOND_US)
