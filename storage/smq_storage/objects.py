"""What the store answers: objects, listings, and the three refusals that callers decide about."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from smq_core.errors import StoreUnavailable


class ObjectMissing(Exception):
    """There is no object of that name."""


class AlreadyThere(Exception):
    """A create-only write was refused. Only a hint of what is there: read it back before believing anything."""


class Changed(Exception):
    """A compare-and-swap write was refused: the object is not, or no longer, the one with that etag."""


class StoreDenied(StoreUnavailable):
    """The store refuses these credentials. Trying again does not help until a person changes something."""

    retry = False


class Object(NamedTuple):
    """An object that was read: its bytes (no copy of what the client received) and its etag."""

    data: memoryview
    etag: str


class Listed(NamedTuple):
    """One object in a listing: path below the root, size in bytes, time of the last change."""

    path: str
    size: int
    modified: datetime


class Tail(NamedTuple):
    """The last bytes of an object, its whole size, its etag."""

    data: memoryview
    size: int
    etag: str
