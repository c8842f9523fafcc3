"""The budget of a producer: how many bytes may be in flight, which means without an outcome."""

from __future__ import annotations

import threading
import time
from collections import deque

from smq.producing.callbacks import in_callback
from smq_core.errors import Overloaded
from smq_storage.process.locks import requires_lock


class InFlightBudget:
    """``limit`` is in bytes. The producer's ``lock`` guards the budget, and the caller of every method holds it."""

    def __init__(self, topic: str, limit: int, lock: threading.Lock) -> None:
        self.used = 0
        self.limit = limit
        self._topic = topic
        self._turns: deque[object] = deque()
        """Who waits for more than the next batch, in order. Small batches would otherwise take what they wait for."""
        self._freed = threading.Condition(lock)
        self._closed = False

    @property
    def full(self) -> bool:
        """Whether another batch should wait. May be read without the lock."""
        return self.used >= self.limit or bool(self._turns)

    @requires_lock("_freed")
    def wait(self, nbytes: int, timeout: float) -> None:
        """Waits until ``nbytes`` fit, or the budget is closed. Any size fits if nothing is in flight.

        ``timeout`` is in seconds. Raises Overloaded, in a delivery callback at once.
        """
        turn = object()
        if nbytes:
            self._turns.append(turn)
        deadline = time.monotonic() + timeout
        try:
            while not self._closed and not self._has_capacity(nbytes, turn):
                left = deadline - time.monotonic()
                if in_callback():
                    raise Overloaded(
                        f"{self.used} bytes are in flight to {self._topic}, and a delivery callback cannot wait for "
                        "capacity, because it runs in a thread that brings outcomes: let another thread send",
                        in_flight=self.used,
                    )
                if left <= 0 or not self._freed.wait(left):
                    raise Overloaded(
                        f"{self.used} bytes are in flight to {self._topic}, and for {timeout} s there was no "
                        f"capacity for {nbytes or 'a batch'} more. The brokers are slow "
                        "or unreachable, a quota slows this client down, or max_in_flight is too small",
                        in_flight=self.used,
                    )
        finally:
            if nbytes:
                self._turns.remove(turn)
                self._freed.notify_all()

    def _has_capacity(self, nbytes: int, turn: object) -> bool:
        if self._turns and self._turns[0] is not turn:
            return False
        return not self.used or self.used + max(nbytes, 1) <= self.limit

    @requires_lock("_freed")
    def add(self, nbytes: int) -> None:
        """Counts bytes without waiting for capacity."""
        if not self._closed:
            self.used += nbytes

    @requires_lock("_freed")
    def release(self, nbytes: int) -> None:
        """These bytes have got their outcome."""
        if not self._closed:
            self.used -= nbytes
            self._freed.notify_all()

    @requires_lock("_freed")
    def close(self) -> None:
        """Frees everything for good, and ends every wait."""
        self._closed = True
        self.used = 0
        self._freed.notify_all()
