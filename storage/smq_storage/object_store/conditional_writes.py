"""Conditional writes with three outcomes: written, not written, or state unknown.

An error of a conditional PUT proves nothing. The store may have applied it and lost the answer, may apply it later, or
may have refused it because an earlier attempt of the same writer was applied. So after *any* error the object is read
back:

==============================  =====================================================================
what is found                   what it means
==============================  =====================================================================
mine                            written, whatever the error was
what was there before           not written so far: the same bytes again, until the time is up
another's                       :class:`WriteConflict`, with what was found
==============================  =====================================================================

That is conclusive for create-only objects, which never change. A compare-and-swap that ends in ``WriteConflict`` may
have been applied and then replaced by a later version. The caller reads and decides again, which is right
in both cases.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from smq_core.errors import StoreDenied, StoreStateUnknown, StoreUnavailable
from smq_storage.object_store.store import EtagMismatch, ObjectExists, ObjectMissing, Store
from smq_storage.thread_runtime import monotonic, sleep

if TYPE_CHECKING:
    from smq_storage.object_store.store import Data

T = TypeVar("T")

FIRST_PAUSE_SECONDS = 0.05
MAX_PAUSE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long a write is repeated while its outcome is not clear: ``timeout_seconds`` from its start.

    ``wait(seconds)`` pauses between attempts. If it returns true, as ``Event.wait`` does, the write ends at once.
    """

    timeout_seconds: float = 30.0
    wait: Callable[[float], object] = sleep
    clock: Callable[[], float] = monotonic


class ReadBackResult(NamedTuple, Generic[T]):
    """What was read back: the decoded object and its etag."""

    value: T
    etag: str


@dataclass(frozen=True, slots=True)
class WriteSucceeded:
    """The object was written and has this etag."""

    etag: str


@dataclass(frozen=True, slots=True)
class WriteConflict(Generic[T]):
    """Another writer created the object or its next version; ``info`` is what it wrote."""

    info: T
    etag: str


# Reads an object back: (store, path) -> decoded object and etag. Raises ObjectMissing.
ReadBack = Callable[[Store, str], ReadBackResult[T]]


def create(
    store: Store,
    path: str,
    data: Data,
    *,
    read_back: ReadBack[T],
    is_mine: Callable[[T], bool],
    retry_policy: RetryPolicy,
) -> WriteSucceeded | WriteConflict[T]:
    """Creates an object that must not exist.

    Raises StoreStateUnknown if the policy's time ends while the object is absent or cannot be read, because it may
    still appear; StoreUnavailable if every attempt surely failed; StoreDenied if the store refuses the credentials
    and the object is absent.
    """
    return _write_until_decided(store, path, lambda: store.put_new(path, data), None, read_back, is_mine, retry_policy)


def replace(
    store: Store,
    path: str,
    data: Data,
    etag: str,
    *,
    read_back: ReadBack[T],
    is_mine: Callable[[T], bool],
    retry_policy: RetryPolicy,
) -> WriteSucceeded | WriteConflict[T]:
    """Replaces the object with that etag. ``WriteConflict`` may hide that this write was applied and then replaced.

    Raises ObjectMissing if the object was deleted, and the errors of :func:`create`.
    """
    return _write_until_decided(
        store, path, lambda: store.put_if(path, data, etag), etag, read_back, is_mine, retry_policy
    )


def _write_until_decided(
    store: Store,
    path: str,
    write: Callable[[], str],
    before: str | None,
    read_back: ReadBack[T],
    is_mine: Callable[[T], bool],
    retry_policy: RetryPolicy,
) -> WriteSucceeded | WriteConflict[T]:
    deadline = retry_policy.clock() + retry_policy.timeout_seconds
    pause = FIRST_PAUSE_SECONDS
    unclear = False  # True if an attempt may still be applied later
    while True:
        try:
            return WriteSucceeded(write())
        except (ObjectExists, EtagMismatch, StoreUnavailable) as error:
            failure = error
        denied = isinstance(failure, StoreDenied)
        unclear = unclear or isinstance(failure, StoreStateUnknown)
        try:
            found = read_back(store, path)
        except ObjectMissing:
            if before is not None:
                raise
        except StoreUnavailable as error:
            # The object cannot be read. A refusal of the write itself is still clear.
            if not denied:
                failure, unclear = error, True
        else:
            if is_mine(found.value):
                return WriteSucceeded(found.etag)
            if found.etag != before:
                return WriteConflict(found.value, found.etag)
        if denied and not unclear:
            raise failure
        if retry_policy.clock() + pause > deadline or retry_policy.wait(pause):
            if not unclear:
                raise StoreUnavailable(f"{path!r} was not written ({failure})", path=path) from failure
            raise StoreStateUnknown(
                f"state unknown: {path!r} was not written so far, but may still appear ({failure})", path=path
            ) from failure
        pause = min(pause * 2, MAX_PAUSE_SECONDS)
