"""Renews the broker's certificate at half of its life, in a thread."""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog

from smq_broker.access.credentials import BrokerCredentials, Login
from smq_broker.runtime.threads import Task, ThreadSupervisor

# How long the thread sleeps at most: the clock of the machine may be set ahead meanwhile.
MAX_SLEEP_SECONDS = 60.0

log = structlog.get_logger(__name__)


class CertificateRenewal:
    """``log_in`` blocks until a leader has given a certificate. ``on_renewal`` is called with it in place.

    ``clock`` is in seconds since the Unix epoch.
    """

    def __init__(
        self,
        credentials: BrokerCredentials,
        *,
        log_in: Callable[[], Login],
        on_renewal: Callable[[], None],
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._credentials = credentials
        self._log_in = log_in
        self._on_renewal = on_renewal
        self._clock = clock
        self._sleep = sleep

    def start(self, threads: ThreadSupervisor) -> None:
        """Raises Unavailable if the system starts no more threads."""
        threads.start(Task(kind="certificate-renewal", run=self._run, endless=True))

    def _run(self) -> None:
        while True:
            self.renew_next()

    def renew_next(self) -> None:
        """Waits until the certificate is to be renewed, and renews it."""
        renew_at = self._credentials.current.certificate.renew_at()
        while (left := renew_at - self._clock()) > 0:
            self._sleep(min(left, MAX_SLEEP_SECONDS))
        login = self._log_in()
        self._credentials.current = login
        self._on_renewal()
        log.info("certificate.renewed", expires_at=login.certificate.expires_at)
