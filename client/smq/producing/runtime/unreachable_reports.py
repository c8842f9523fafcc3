"""Reports to the leader that a broker cannot be reached: in the background, and not too often."""

from __future__ import annotations

import time
from typing import Protocol

from smq.producing.runtime.background import BackgroundWorker
from smq_storage.process.locks import make_lock

REPORT_INTERVAL_SECONDS = 0.5


class LeaderReports(Protocol):
    """What reports need of a topic's view."""

    def report_unreachable_broker(self, incarnation: str, what: str) -> None: ...


class UnreachableReports:
    """For all producers of a client. An incarnation is reported at most twice a second."""

    def __init__(self) -> None:
        self._worker = BackgroundWorker("smq-unreachable-reports")
        self._lock = make_lock()
        self._reported_at: dict[str, float] = {}

    def report(self, view: LeaderReports, incarnation: str, what: str) -> None:
        now = time.monotonic()
        with self._lock:
            self._reported_at = {it: at for it, at in self._reported_at.items() if now - at < REPORT_INTERVAL_SECONDS}
            if incarnation in self._reported_at:
                return
            self._reported_at[incarnation] = now
        self._worker.submit(lambda: view.report_unreachable_broker(incarnation, what))

    def close(self) -> None:
        self._worker.close()
