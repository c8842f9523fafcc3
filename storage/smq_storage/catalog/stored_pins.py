"""_pins/<id>.json: the pins of readers, each changed by compare-and-swap (see ``smq_core.reading.pins``).

Times are the filer's: a pin was renewed when its object was changed last, and the first renewal writes the time of the
creation into it. The clock of the reader's machine does not matter.

A pin that has expired is renewed no more, but whether it has expired is not the reader's decision. The leader ends a
pin by a compare-and-swap before it deletes what the pin covered. A renewal is one, too, so exactly one of both wins: if
a renewal succeeds, everything that the pin covers is still there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from smq_core.errors import Conflict, InvalidRequest, PinExpired
from smq_core.model.entities import SECOND, Micros
from smq_core.model.interval_set import EMPTY, IntervalSet
from smq_core.model.names import check_name
from smq_core.reading.pins import MIN_LIFETIME, ReaderPin, StoredPin
from smq_storage.catalog import paths
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.json_codec import from_json
from smq_storage.object_store.json_documents import write_document
from smq_storage.object_store.store import ObjectMissing, Store

DEFAULT_RETRY_POLICY = RetryPolicy()
MAX_OWNER_LENGTH = 200
MAX_BYTES = 1024 * 1024
FOR_EVER: Micros = 1 << 60


def create_pin(
    store: Store,
    topic: str,
    uid: str,
    pin_id: str,
    owner: str,
    lifetime: Micros,
    removed: IntervalSet,
    writer: str,
    retry_policy: RetryPolicy = DEFAULT_RETRY_POLICY,
) -> None:
    """Creates the pin. ``removed`` are the removed segments of an index that was read before; ``writer`` is unique.

    Use ``smq_storage.tables.pinned_reads``, which keeps the order. Raises InvalidRequest, Conflict if another reader
    has a pin with this id, StoreUnavailable, StoreStateUnknown.
    """
    if lifetime < MIN_LIFETIME:
        raise InvalidRequest(f"a pin lives {MIN_LIFETIME // SECOND} seconds or longer, not {lifetime / SECOND:g}")
    check_name("the owner of a pin", owner, MAX_OWNER_LENGTH)
    pin = ReaderPin(owner, lifetime, removed, writer=writer)
    if (
        write_document(
            store, paths.pin(topic, uid, pin_id), pin, None, is_mine=_written_by(writer), retry_policy=retry_policy
        )
        is None
    ):
        raise Conflict(f"there is another pin {pin_id} already: choose another id")


def renew_pin(
    store: Store,
    topic: str,
    uid: str,
    pin_id: str,
    writer: str,
    retry_policy: RetryPolicy = DEFAULT_RETRY_POLICY,
) -> None:
    """Lets the pin live for its lifetime from now on. ``writer`` is unique for this call.

    If it returns, the pin lived without interruption until now. Raises PinExpired, StoreUnavailable and
    StoreStateUnknown.
    """
    while True:
        found = read_pin(store, topic, uid, pin_id)
        if found is None or found.pin.ended or found.problem:
            raise expired(pin_id)
        new = replace(found.pin, created_at=found.created_at, writer=writer)
        # If it was not written, the leader has ended the pin, or what was read was out of date.
        if _replace(store, topic, uid, found, new, retry_policy):
            return


def renew_shared_pin(
    store: Store,
    topic: str,
    uid: str,
    pin_id: str,
    writer: str,
    retry_policy: RetryPolicy = DEFAULT_RETRY_POLICY,
) -> None:
    """As :func:`renew_pin`, for one of many readers of a pin: another one's renewal of the same moment is enough."""
    found = read_pin(store, topic, uid, pin_id)
    for _ in range(2):
        if found is None or found.pin.ended or found.problem:
            raise expired(pin_id)
        new = replace(found.pin, created_at=found.created_at, writer=writer)
        if _replace(store, topic, uid, found, new, retry_policy):
            return
        before, found = found, read_pin(store, topic, uid, pin_id)
        if found is not None and not found.pin.ended and found.etag != before.etag:
            return
    renew_pin(store, topic, uid, pin_id, writer, retry_policy)


def end_pin(
    store: Store, topic: str, uid: str, found: StoredPin, writer: str, retry_policy: RetryPolicy = DEFAULT_RETRY_POLICY
) -> bool:
    """Ends the pin as it was found, for good. False if its reader renewed or released it first.

    Raises StoreUnavailable and StoreStateUnknown: then it may still protect files.
    """
    return found.pin.ended or _replace(
        store, topic, uid, found, replace(found.pin, ended=True, writer=writer), retry_policy
    )


def delete_pin(store: Store, topic: str, uid: str, pin_id: str) -> None:
    """Deletes the pin, if there is one: a reader its own one, the leader one that ended. Raises StoreUnavailable."""
    store.delete(paths.pin(topic, uid, pin_id))


def read_pin(store: Store, topic: str, uid: str, pin_id: str) -> StoredPin | None:
    """The pin, or None. ``problem`` is set if it cannot be understood. Raises StoreUnavailable."""
    path = paths.pin(topic, uid, pin_id)
    try:
        tail = store.get_tail(path, MAX_BYTES)  # its answer has etag, time and bytes of one version
    except ObjectMissing:
        return None
    renewed_at = round(tail.modified.timestamp() * SECOND)
    try:
        if tail.size > len(tail.data):
            raise ValueError(f"it has {tail.size} bytes")
        pin, problem = from_json(ReaderPin, tail.data), ""
    except ValueError as error:
        pin, problem = ReaderPin("", FOR_EVER, EMPTY), f"{path} cannot be understood: {error}"
    return StoredPin(id=pin_id, pin=pin, etag=tail.etag, renewed_at=renewed_at, problem=problem)


def list_pins(store: Store, topic: str, uid: str) -> list[StoredPin]:
    """The pins of a topic, also ended ones, the oldest first. From a listing. Raises StoreUnavailable."""
    ids = (paths.pin_id(o.path) for o in store.list(paths.pins_folder(topic, uid)))
    found = (read_pin(store, topic, uid, pin_id) for pin_id in ids if pin_id is not None)
    return sorted((pin for pin in found if pin is not None), key=lambda pin: pin.created_at)


def expired(pin_id: str) -> PinExpired:
    """The error for a pin that does not protect its files any more."""
    return PinExpired(
        f"the pin {pin_id} has ended, and files that were planned may be gone: it was not renewed in time, or it is "
        "older than the leader's --max-pin-age. Begin the read again, with a new pin",
        pin=pin_id,
    )


def _replace(store: Store, topic: str, uid: str, found: StoredPin, new: ReaderPin, retry_policy: RetryPolicy) -> bool:
    path, mine = paths.pin(topic, uid, found.id), _written_by(new.writer)
    return write_document(store, path, new, found.etag, is_mine=mine, retry_policy=retry_policy) is not None


def _written_by(writer: str) -> Callable[[ReaderPin], bool]:
    return lambda pin: pin.writer == writer
