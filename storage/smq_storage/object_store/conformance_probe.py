"""Checks at the start that the store honours conditional writes: it races the very calls that the log uses."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from smq_core.errors import StoreDenied, StoreUnavailable, StoreUnsupported
from smq_storage.object_store.store import EtagMismatch, ObjectExists, ObjectMissing, Store

# Below the store's root. It is empty when no probe runs.
PROBE_FOLDER = "_probe"

RACERS = 2
ROUNDS = 10

_ADVICE = (
    "SeaweedMQ would lose messages on it. Use a store that honours If-None-Match and If-Match on PUT also when "
    "requests race, such as AWS S3 or a recent SeaweedFS (4.48 does, 4.16 does not) through its S3 port, in a bucket "
    "without versioning, and put no proxy or cache before it that drops these headers."
)


def check_conformance(store: Store, *, racers: int = RACERS, rounds: int = ROUNDS) -> None:
    """Returns if the store honours conditional writes. Leaves no object behind.

    The default, many races of two, takes some tenths of a second. With more than two racers SeaweedFS waits in steps of
    a second, so 16 of them take up to ten seconds for one round.
    Raises StoreUnsupported if conditional writes are not honoured, StoreDenied or StoreUnavailable if the store gives
    no clear answer.
    """
    for _ in range(rounds):
        _run_races(store, racers)


def _run_races(store: Store, racers: int) -> None:
    created, replaced = (f"{PROBE_FOLDER}/{uuid.uuid4().hex}" for _ in range(2))
    with ThreadPoolExecutor(2, thread_name_prefix="probe") as pool:
        races = [
            pool.submit(_race_create, store, created, racers),
            pool.submit(_race_replace, store, replaced, racers),
        ]
    for path in (created, replaced):
        _clean(store, path)
    for race in races:
        race.result()


def _race_create(store: Store, path: str, racers: int) -> None:
    bodies = [f"create {number}".encode() for number in range(racers)]
    winners = _race(lambda number: store.put_new(path, bodies[number]), racers)
    _expect_one(winners, racers, "creations (If-None-Match: *) of one object")
    _expect_content(store, path, bodies[winners[0]], "created")
    try:
        store.put_new(path, b"late")
    except ObjectExists:
        return
    raise StoreUnsupported(f"{store} let a create-only write replace an existing object. {_ADVICE}")


def _race_replace(store: Store, path: str, racers: int) -> None:
    etag = store.put_new(path, b"first")
    bodies = [f"replace {number}".encode() for number in range(racers)]
    winners = _race(lambda number: store.put_if(path, bodies[number], etag), racers)
    _expect_one(winners, racers, "replacements (If-Match) of one version of an object")
    _expect_content(store, path, bodies[winners[0]], "replaced")
    try:
        store.put_if(path, b"late", etag)
    except (EtagMismatch, ObjectExists):
        return
    raise StoreUnsupported(f"{store} let a write with an old etag (If-Match) replace a newer object. {_ADVICE}")


def _race(attempt: Callable[[int], str], racers: int) -> list[int]:
    """The numbers of the racers whose write succeeded."""
    start = threading.Barrier(racers)
    unclear: list[StoreUnavailable] = []

    def run(number: int) -> int | None:
        start.wait()
        try:
            attempt(number)
        except (ObjectExists, EtagMismatch):
            return None
        except StoreUnavailable as error:
            unclear.append(error)
            return None
        return number

    with ThreadPoolExecutor(racers, thread_name_prefix="probe") as pool:
        winners = [number for number in pool.map(run, range(racers)) if number is not None]
    if denied := next((error for error in unclear if isinstance(error, StoreDenied)), None):
        raise denied
    # A racer without an answer may be the winner. Two winners are too many, whatever the others got.
    if unclear and len(winners) < 2:
        raise unclear[0]
    return winners


def _expect_one(winners: list[int], racers: int, what: str) -> None:
    if len(winners) != 1:
        raise StoreUnsupported(
            f"{len(winners)} of {racers} simultaneous {what} succeeded instead of exactly one. {_ADVICE}"
        )


def _expect_content(store: Store, path: str, wanted: bytes, verb: str) -> None:
    try:
        found = bytes(store.get(path).data)
    except ObjectMissing:
        found = b""
    if found != wanted:
        raise StoreUnsupported(
            f"{store} {verb} an object, but reading it back at once gave something else ({found[:40]!r}). {_ADVICE}"
        )


def _clean(store: Store, path: str) -> None:
    try:
        store.delete(path)
    except StoreUnavailable:
        return  # nothing reads below _probe/, and an error of the race matters more
