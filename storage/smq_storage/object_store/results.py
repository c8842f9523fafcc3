"""What the store answers: objects, listings, and the three refusals on which callers decide."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple


class ObjectMissing(Exception):
    """There is no object of that name."""


class ObjectExists(Exception):
    """A create-only write was refused. Only a hint: read the object back to see what is there."""


class EtagMismatch(Exception):
    """A compare-and-swap or a read was refused, because the object does not have that etag (any more)."""


class StoredObject(NamedTuple):
    """An object that was read: its bytes (no copy of what the client received) and its etag."""

    data: memoryview
    etag: str


class ObjectInfo(NamedTuple):
    """One object in a listing: path below the root, size in bytes, time of the last change."""

    path: str
    size: int
    modified: datetime


class ObjectTail(NamedTuple):
    """The last bytes of an object, its whole size, its etag, the time of its last change."""

    data: memoryview
    size: int
    etag: str
    modified: datetime
