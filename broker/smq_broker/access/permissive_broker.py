"""The security of a broker while its release is being secured: it serves callers with certificates and without.

It serves before its first login, because its leader may not have been restarted in this mode yet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from smq_broker.access.callers import Access, Caller
from smq_broker.access.credentials import Login
from smq_broker.access.dialer import PermissiveDialer
from smq_broker.access.secure_broker import SecureBroker
from smq_broker.access.secure_callers import SecureAccess
from smq_broker.runtime.threads import Task, ThreadSupervisor
from smq_core.access.certificates import Certificate


class PermissiveBroker:
    """See ``Security`` and ``Access``.

    ``first`` is None if no leader has given a certificate yet; ``log_in`` blocks until one has.
    """

    permissive = True

    def __init__(
        self, first: Login | None, *, make: Callable[[Login], SecureBroker], log_in: Callable[[], Login]
    ) -> None:
        self._make = make
        self._log_in = log_in
        self._secure = make(first) if first is not None else None
        self.dialer = PermissiveDialer(lambda: self._secure.dialer if self._secure is not None else None)

    @property
    def access(self) -> Access:
        return self

    def caller(self, context: Any) -> Caller:
        assert self._secure is not None, "there is no server for TLS before there is a certificate"
        return self._secure.access.caller(context)

    def secure_access(self) -> SecureAccess:
        """Only once there is a certificate."""
        assert self._secure is not None, "nobody speaks TLS before there is a certificate"
        return self._secure.access

    @property
    def certificate(self) -> Certificate | None:
        return self._secure.certificate if self._secure is not None else None

    @property
    def authorities(self) -> str:
        return self._secure.authorities if self._secure is not None else ""

    def follow(self, authorities: str) -> None:
        if self._secure is not None:
            self._secure.follow(authorities)

    def start_renewal(self, on_renewal: Callable[[], None], threads: ThreadSupervisor) -> None:
        if self._secure is not None:
            self._secure.start_renewal(on_renewal, threads)
            return

        def first() -> None:
            self._secure = self._make(self._log_in())
            on_renewal()
            self._secure.start_renewal(on_renewal, threads)

        threads.start(Task(kind="first-login", run=first))
