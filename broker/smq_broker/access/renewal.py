"""Renews the broker's certificate in a thread: at half of its life, and when the release has other authorities."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import structlog

from smq_broker.access.credentials import BrokerCredentials, Login
from smq_broker.runtime.threads import Task, ThreadSupervisor

# How long the thread waits at most: the clock of the machine may be set ahead meanwhile.
MAX_WAIT_SECONDS = 60.0

log = structlog.get_logger(__name__)


class CertificateRenewal:
    """``log_in`` blocks until a leader has given a certificate.

    ``clock`` is in seconds since the Unix epoch. ``wait`` returns after these seconds at the latest, and at once when
    ``follow`` has been called.
    """

    def __init__(
        self,
        credentials: BrokerCredentials,
        *,
        log_in: Callable[[], Login],
        clock: Callable[[], float] = time.time,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        self._credentials = credentials
        self._log_in = log_in
        self._clock = clock
        self._wake = threading.Event()
        self._wait = wait or self._wake.wait
        self.authorities = self._announced = credentials.current.authorities
        """The id of those that this broker uses, for reports: its server shows a certificate of theirs by now."""

    def start(self, on_renewal: Callable[[], None], threads: ThreadSupervisor) -> None:
        """``on_renewal`` is called with each new certificate in place. Raises Unavailable without threads."""

        def run() -> None:
            while True:
                self.renew_next(on_renewal)

        threads.start(Task(kind="certificate-renewal", run=run, endless=True))

    def follow(self, authorities: str) -> None:
        """The leader says which authorities the release has now. For others the certificate is renewed at once."""
        if authorities:
            self._announced = authorities
            if authorities != self.authorities:
                self._wake.set()

    def renew_next(self, on_renewal: Callable[[], None]) -> None:
        """Waits until the certificate is to be renewed, and renews it."""
        renew_at = self._credentials.current.certificate.renew_at()
        while (left := renew_at - self._clock()) > 0 and self._announced == self.authorities:
            self._wait(min(left, MAX_WAIT_SECONDS))
            self._wake.clear()
        login = self._log_in()
        self._announced = login.authorities  # newer than what was announced before
        self._credentials.current = login
        on_renewal()
        self.authorities = login.authorities
        log.info("certificate.renewed", expires_at=login.certificate.expires_at, authorities=login.authorities)
