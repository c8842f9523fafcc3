"""The security of a broker that has logged in at a leader."""

from __future__ import annotations

import time
from collections.abc import Callable

from prometheus_client import Gauge

from smq_broker.access.credentials import BrokerCredentials, Login
from smq_broker.access.denials import Denials
from smq_broker.access.dialer import FlightDialer
from smq_broker.access.renewal import CertificateRenewal
from smq_broker.access.secure_callers import SecureAccess
from smq_broker.runtime.broker_metrics import BrokerMetrics
from smq_broker.runtime.threads import ThreadSupervisor
from smq_core.access.certificates import Certificate


class SecureBroker:
    """See ``Security``. ``login`` is the first one, ``log_in`` gets the next ones.

    ``leader_answered_at`` is when a leader last answered, in monotonic seconds; None before the first answer.
    """

    permissive = False

    def __init__(
        self,
        login: Login,
        *,
        log_in: Callable[[], Login],
        leader_answered_at: Callable[[], float | None],
        topic_name: Callable[[str], str],
        broker_metrics: BrokerMetrics,
    ) -> None:
        self._credentials = BrokerCredentials(login)
        self._renewal = CertificateRenewal(self._credentials, log_in=log_in)
        self._leader_answered_at = leader_answered_at
        self._logged_in_at = time.monotonic()
        self.dialer = FlightDialer(self._credentials)
        self.access = SecureAccess(
            self._credentials,
            denials=Denials(broker_metrics),
            count_grace=broker_metrics.grace_grants.inc,
            count_throttled=broker_metrics.count_throttled,
            leader_seen_at=self._leader_seen_at,
            topic_name=topic_name,
        )
        expiry = Gauge(
            "smq_broker_certificate_expiry_timestamp_seconds",
            "When the broker's certificate expires, in seconds since the Unix epoch.",
            registry=broker_metrics.registry,
        )
        expiry.set_function(lambda: self.certificate.expires_at)

    def secure_access(self) -> SecureAccess:
        return self.access

    @property
    def certificate(self) -> Certificate:
        return self._credentials.current.certificate

    @property
    def authorities(self) -> str:
        return self._renewal.authorities

    def follow(self, authorities: str) -> None:
        self._renewal.follow(authorities)

    def start_renewal(self, on_renewal: Callable[[], None], threads: ThreadSupervisor) -> None:
        self._renewal.start(on_renewal, threads)

    def _leader_seen_at(self) -> float:
        answered_at = self._leader_answered_at() or self._logged_in_at
        return time.time() - (time.monotonic() - answered_at)
