"""Producers that are open when the program ends are flushed, because its threads do not keep a process alive.

That happens twice. Python 3.12 starts no thread in functions of atexit, and a stream that is not open yet needs one: so
what was sent is delivered when the main thread ends. What other threads send after that is delivered in atexit.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import weakref
from typing import Protocol


class Open(Protocol):
    """What a producer has to deliver."""

    def deliver_at_exit(self) -> None: ...

    def flush_at_exit(self) -> None: ...


class _OpenProducers:
    """Those of this process. A fork has none of its parent's."""

    def __init__(self) -> None:
        self._pid = 0
        self._open: weakref.WeakSet[Open] = weakref.WeakSet()

    def add(self, one: Open) -> None:
        if self._pid != os.getpid():
            self._pid, self._open = os.getpid(), weakref.WeakSet()
            atexit.register(self.flush)
            with contextlib.suppress(RuntimeError):  # the main thread has ended
                threading._register_atexit(self._deliver)  # type: ignore[attr-defined]
            if "multiprocessing.process" in sys.modules:
                _call_at_end_of_worker(self)
        self._open.add(one)

    def _deliver(self) -> None:
        if self._pid == os.getpid():
            for one in list(self._open):
                one.deliver_at_exit()

    def flush(self) -> None:
        """Once for each: with multiprocessing, the main process gets here twice."""
        if self._pid == os.getpid():
            opened, self._open = list(self._open), weakref.WeakSet()
            for one in opened:
                one.flush_at_exit()


def _call_at_end_of_worker(producers: _OpenProducers) -> None:
    """The processes of multiprocessing end without the functions of atexit."""
    from multiprocessing.util import Finalize

    Finalize(None, producers.flush, exitpriority=1)


_producers = _OpenProducers()


def flush_at_exit(one: Open) -> None:
    """Calls its ``deliver_at_exit``, and later its ``flush_at_exit``, when the program ends, if it is still there."""
    _producers.add(one)
