"""Does the store keep the promises on which the log rests? Raced at start with the very calls that will be used."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from smq_core.errors import StoreUnavailable, StoreUnfit
from smq_storage import paths
from smq_storage.store import AlreadyThere, Changed, ObjectMissing, Store, StoreDenied

RACERS = 16
ROUNDS = 3

_ADVICE = (
    "SeaweedMQ would lose messages on it. Use a store that honours If-None-Match and If-Match on PUT, such as "
    "SeaweedFS 4.x through its S3 port or AWS S3, and put no proxy or cache before it that drops these headers."
)


def probe(store: Store, rounds: int = ROUNDS) -> None:
    """Returns when the store is fit. Takes about 50 requests per round and leaves nothing behind.

    Raises StoreUnfit when conditional writes are not honoured, StoreDenied and StoreUnavailable when it cannot be told.
    """
    for _ in range(rounds):
        path = f"{paths.PROBE}/{uuid.uuid4().hex}"
        try:
            _race_create(store, path)
            _race_replace(store, path)
        finally:
            _clean(store, path)


def _race_create(store: Store, path: str) -> None:
    bodies = [f"create {number}".encode() for number in range(RACERS)]
    winners = _race(lambda number: store.put_new(path, bodies[number]))
    _expect_one(winners, "creations (If-None-Match: *) of one object")
    _expect_content(store, path, bodies[winners[0]], "created")
    try:
        store.put_new(path, b"late")
    except AlreadyThere:
        return
    raise StoreUnfit(f"{store} let a create-only write replace an existing object. {_ADVICE}")


def _race_replace(store: Store, path: str) -> None:
    etag = store.get(path).etag
    bodies = [f"replace {number}".encode() for number in range(RACERS)]
    winners = _race(lambda number: store.put_if(path, bodies[number], etag))
    _expect_one(winners, "replacements (If-Match) of one version of an object")
    _expect_content(store, path, bodies[winners[0]], "replaced")
    try:
        store.put_if(path, b"late", etag)
    except (Changed, AlreadyThere):
        return
    raise StoreUnfit(f"{store} let a write with an old etag (If-Match) replace a newer object. {_ADVICE}")


def _race(attempt: Callable[[int], str]) -> list[int]:
    """The numbers of those who were told that they won."""
    start = threading.Barrier(RACERS)
    unclear: list[StoreUnavailable] = []

    def run(number: int) -> int | None:
        start.wait()
        try:
            attempt(number)
        except (AlreadyThere, Changed):
            return None
        except StoreUnavailable as error:
            unclear.append(error)
            return None
        return number

    with ThreadPoolExecutor(RACERS, thread_name_prefix="probe") as racers:
        winners = [number for number in racers.map(run, range(RACERS)) if number is not None]
    if denied := next((error for error in unclear if isinstance(error, StoreDenied)), None):
        raise denied
    # A racer without an answer may be the winner. Two winners are too many whatever the others were told.
    if unclear and len(winners) < 2:
        raise unclear[0]
    return winners


def _expect_one(winners: list[int], what: str) -> None:
    if len(winners) != 1:
        raise StoreUnfit(f"{len(winners)} of {RACERS} simultaneous {what} succeeded instead of exactly one. {_ADVICE}")


def _expect_content(store: Store, path: str, wanted: bytes, verb: str) -> None:
    try:
        found = bytes(store.get(path).data)
    except ObjectMissing:
        found = b""
    if found != wanted:
        raise StoreUnfit(
            f"{store} {verb} an object, but reading it back at once gave something else ({found[:40]!r}). {_ADVICE}"
        )


def _clean(store: Store, path: str) -> None:
    try:
        store.delete(path)
    except StoreUnavailable:
        return  # nothing reads below _probe/, and the error that matters is the one on its way
