"""A thread for calls that may block, which nobody waits for."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

from smq_storage.process.locks import make_lock

log = logging.getLogger(__name__)


class BackgroundWorker:
    """Runs calls one after the other. The thread starts with the first one and ends by ``close``."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = make_lock()
        self._thread: threading.Thread | None = None
        self._closed = False

    def submit(self, call: Callable[[], None]) -> None:
        """Runs ``call`` in the thread. Its exceptions are logged. After ``close`` nothing runs."""
        with self._lock:
            if self._closed:
                return
            self._calls.put(call)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Ends the thread after the present call. Repeatable, also from a call."""
        with self._lock:
            self._closed = True
            thread = self._thread
        self._calls.put(None)
        if thread is not None and thread is not threading.current_thread():
            thread.join(5)

    def _run(self) -> None:
        while not self._closed and (call := self._calls.get()) is not None:
            try:
                call()
            except Exception:
                log.exception("a call of %s failed", self._name)
