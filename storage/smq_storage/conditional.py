"""Conditional writes whose outcome is always known, or said to be unknown.

An error of a conditional PUT says nothing by itself: the store may have applied it and lost the answer, may apply it
later, or may have refused it because an earlier attempt of the same writer was applied. So after *any* error the object
is read back:

==============================  =====================================================================
what is found                   what it means
==============================  =====================================================================
mine                            written, whatever the error was
what was there before           not written so far: the same bytes again, until the patience ends
another's                       :class:`Taken`, with what was found
==============================  =====================================================================

That is conclusive for create-only objects, which never change. A compare-and-swap that ends in ``Taken`` may have been
applied and then replaced by its successor: the caller reads and thinks again, which is right in either case.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from smq_core.errors import StoreUnavailable
from smq_storage.store import AlreadyThere, Changed, ObjectMissing, Store, StoreDenied

if TYPE_CHECKING:
    from smq_storage.store import Data

T = TypeVar("T")

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 1.0


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a write goes on while nothing is clear: ``seconds`` from its start.

    ``wait(seconds)`` pauses between attempts; when it returns true (as ``Event.wait`` does) the write gives up.
    """

    seconds: float = 30.0
    wait: Callable[[float], object] = time.sleep
    clock: Callable[[], float] = time.monotonic


class Found(NamedTuple, Generic[T]):
    """What was read back: the object's meaning and its etag."""

    value: T
    etag: str


@dataclass(frozen=True, slots=True)
class Written:
    """The object is mine now, with this etag."""

    etag: str


@dataclass(frozen=True, slots=True)
class Taken(Generic[T]):
    """The name (or the next version) belongs to another writer; ``info`` is what it wrote."""

    info: T
    etag: str


Look = Callable[[Store, str], Found[T]]
"""Reads an object back: (store, path) -> meaning and etag. Raises ObjectMissing."""


def create(
    store: Store, path: str, data: Data, *, look: Look[T], is_mine: Callable[[T], bool], patience: Patience
) -> Written | Taken[T]:
    """Creates an object that must not exist.

    Raises StoreUnavailable ("state unknown") when the patience ends while the object is absent or cannot be read: it
    may still appear. Raises StoreDenied when the store refuses the credentials and the object is absent.
    """
    return _settle(store, path, lambda: store.put_new(path, data), None, look, is_mine, patience)


def replace(
    store: Store,
    path: str,
    data: Data,
    etag: str,
    *,
    look: Look[T],
    is_mine: Callable[[T], bool],
    patience: Patience,
) -> Written | Taken[T]:
    """Replaces the object with that etag. ``Taken`` may hide that this write was applied and then replaced.

    An object that has vanished (it was deleted) raises ObjectMissing. Other errors as :func:`create`.
    """
    return _settle(store, path, lambda: store.put_if(path, data, etag), etag, look, is_mine, patience)


def _settle(
    store: Store,
    path: str,
    write: Callable[[], str],
    before: str | None,
    look: Look[T],
    is_mine: Callable[[T], bool],
    patience: Patience,
) -> Written | Taken[T]:
    deadline = patience.clock() + patience.seconds
    pause = FIRST_PAUSE
    unclear = False  # did an attempt end so that it may still be applied later?
    while True:
        try:
            return Written(write())
        except (AlreadyThere, Changed, StoreUnavailable) as error:
            failure = error
        denied = isinstance(failure, StoreDenied)
        unclear = unclear or (isinstance(failure, StoreUnavailable) and not denied)
        try:
            found = look(store, path)
        except ObjectMissing:
            if before is not None:
                raise
        except StoreUnavailable as error:
            # Not even readable. A refusal of the write itself is still clear.
            if not denied:
                failure, unclear = error, True
        else:
            if is_mine(found.value):
                return Written(found.etag)
            if found.etag != before:
                return Taken(found.value, found.etag)
        if denied and not unclear:
            raise failure
        if patience.clock() + pause > deadline or patience.wait(pause):
            raise StoreUnavailable(
                f"state unknown: {path!r} was not written so far, but may still appear ({failure})", path=path
            ) from failure
        pause = min(pause * 2, LONGEST_PAUSE)
