"""Keeps the pins of reads alive, in one thread of the driver.

A DataFrame may be run again at any time, and nothing says when it never will. So a pin is renewed until the read is
released, its Spark session has stopped, or it is older than it may become. The process's end releases what is left; if
the process is killed, the pins end by themselves.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from smq_core.errors import PinExpired, SmqError
from smq_storage.process.locks import make_lock
from smq_storage.tables.pinned_reads import PinnedRead

log = logging.getLogger(__name__)

# How often the thread looks for sessions that have stopped and for pins to renew.
CHECK_SECONDS = 5.0


@dataclass(slots=True)
class KeptPin:
    """A pin that is renewed until ``ends_at``, in monotonic seconds, or until ``is_over`` says so."""

    read: PinnedRead
    ends_at: float
    is_over: Callable[[], bool]


class PinKeeper:
    """Safe from many threads. ``clock`` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, check_seconds: float = CHECK_SECONDS) -> None:
        self._clock = clock
        self._check_seconds = check_seconds
        self._lock = make_lock()
        self._pins: dict[str, KeptPin] = {}
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    def keep(self, pin: KeptPin) -> None:
        """Renews the pin from now on."""
        with self._lock:
            self._pins[pin.read.pin_id] = pin
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="smq-pins", daemon=True)
                self._thread.start()
                atexit.register(self.release_all)

    def release(self, pin_id: str) -> bool:
        """Lets the files go. False if the pin is not kept any more."""
        with self._lock:
            pin = self._pins.pop(pin_id, None)
            if pin is not None:
                _release(pin.read)
        return pin is not None

    def release_all(self) -> None:
        """Releases everything, as at the end of the process."""
        for pin_id in self.kept():
            self.release(pin_id)

    def kept(self) -> list[str]:
        """The ids of the pins that are renewed."""
        with self._lock:
            return list(self._pins)

    def check(self) -> None:
        """Renews what is due, and releases what is over. The thread calls it from time to time."""
        for pin_id in self.kept():
            with self._lock:
                pin = self._pins.get(pin_id)
                if pin is not None and not self._check(pin):
                    del self._pins[pin_id]

    def _check(self, pin: KeptPin) -> bool:
        if pin.is_over():
            _release(pin.read)
            return False
        if self._clock() >= pin.ends_at:
            log.warning("the pin %s is as old as it may become: its files may be deleted now", pin.read.pin_id)
            _release(pin.read)
            return False
        try:
            pin.read.keep()
        except PinExpired as error:
            log.warning("%s", error.message)
            return False
        except SmqError as error:
            log.warning("the pin %s was not renewed, and will be tried again: %s", pin.read.pin_id, error.message)
        return True

    def _run(self) -> None:
        while not self._stop.wait(self._check_seconds):
            try:
                self.check()
            except Exception:
                log.exception("the pins could not be checked")


def _release(read: PinnedRead) -> None:
    try:
        read.release()
    except SmqError as error:
        log.debug("the pin %s ends by itself: %s", read.pin_id, error.message)


# The one of this process.
KEEPER = PinKeeper()
