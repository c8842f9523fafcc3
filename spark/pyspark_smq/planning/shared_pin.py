"""The pin of a read that many tasks share: whichever task runs keeps it."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable

from smq.reading import StateLoader, TopicLocation, TopicState
from smq_core.errors import DataLost, StoreDenied, StoreUnavailable
from smq_core.model.entities import SECOND, Micros
from smq_core.reading.pins import DEFAULT_LIFETIME
from smq_storage.catalog.stored_pins import expired, read_pin, renew_shared_pin
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import Store
from smq_storage.tables.pinned_reads import PinnedRead, PinnedReads

log = logging.getLogger(__name__)


class SharedPin:
    """A task's part in keeping a pin. For one thread. It is renewed when the task begins, and then from time to time.

    ``pin_id`` is None if there is no pin. With ``renews`` unset, whoever planned the read keeps it. ``lifetime`` is the
    pin's, and ``clock`` monotonic, in seconds.
    """

    def __init__(
        self,
        store: Store,
        location: TopicLocation,
        pin_id: str | None,
        renews: bool,
        lifetime: Micros = DEFAULT_LIFETIME,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._at = location.topic, location.uid
        self._pin_id = pin_id
        self._renews = renews
        self._renew_after = lifetime / SECOND / 3
        self._clock = clock
        self._renewed_at: float | None = None

    def keep(self) -> None:
        """Renews the pin if that is due. Raises PinExpired. A filer that is away is no reason to fail yet."""
        now = self._clock()
        due = self._renewed_at is None or now - self._renewed_at >= self._renew_after
        if self._pin_id is None or not self._renews or not due:
            return
        self._renewed_at = now
        self._renew(self._pin_id)

    def explain(self, error: DataLost) -> None:
        """Raises PinExpired if the pin has ended, which explains that messages are gone, and ``error`` otherwise."""
        if self._pin_id is not None:
            self._renew(self._pin_id)
        raise error

    def _renew(self, pin_id: str) -> None:
        try:
            renew_shared_pin(self._store, *self._at, pin_id, uuid.uuid4().hex)
        except StoreUnavailable:
            self._renewed_at = None  # again with the next rows


def begin_read(
    store: Store, location: TopicLocation, loader: StateLoader, owner: str, lifetime: Micros = DEFAULT_LIFETIME
) -> tuple[TopicState, PinnedRead | None]:
    """The topic's state, and the pin that keeps the files that it names.

    There is none, and a warning says so, if the credentials may not write one. Raises as ``PinnedReads.begin`` and
    ``StateLoader.load``.
    """
    try:
        pinned = pinned_reads(store).begin(location.topic, location.uid, owner, lifetime)
    except StoreDenied as error:
        state = loader.load()  # raises if it may not read either
        log.warning("the files are read without a pin, so that retention may remove them: %s", error.message)
        return state, None
    try:
        return loader.complete(pinned.files), pinned
    except BaseException:
        with pinned:
            raise


def check_pin(store: Store, location: TopicLocation, pin_id: str) -> None:
    """Raises PinExpired if the pin protects its files no more."""
    found = read_pin(store, location.topic, location.uid, pin_id)
    if found is None or found.pin.ended:
        raise expired(pin_id)


def pinned_reads(store: Store) -> PinnedReads:
    """What begins Spark's reads in this store."""
    return PinnedReads(store, lambda: f"spark-{uuid.uuid4().hex}", _monotonic_micros, RetryPolicy())


def _monotonic_micros() -> Micros:
    return time.monotonic_ns() * SECOND // 1_000_000_000
