"""The broker's certificate is renewed at half of its life, and when the release has other authorities."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from smq_broker.access.credentials import BrokerCredentials, Login
from smq_broker.access.renewal import CertificateRenewal
from smq_core.access.certificates import Certificate
from smq_proto.signed_grants import GrantVerifier


@dataclass
class Broker:
    """In virtual time. ``authorities`` are those that the leader gives with a login."""

    now: float = 1000.0
    authorities: str = "first"
    waited: list[float] = field(default_factory=list)
    swaps: list[tuple[float, float]] = field(default_factory=list)
    on_wait: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self.credentials = BrokerCredentials(self.log_in())
        self.renewal = CertificateRenewal(self.credentials, log_in=self.log_in, clock=lambda: self.now, wait=self.wait)

    def log_in(self) -> Login:
        certificate = Certificate(chain=b"", key=b"", roots=b"", issued_at=self.now, expires_at=self.now + 86_400)
        return Login("release-1", certificate, GrantVerifier([]), self.authorities)

    def wait(self, seconds: float) -> None:
        self.waited.append(seconds)
        self.now += seconds
        self.on_wait()

    def swap(self) -> None:
        self.swaps.append((self.now, self.credentials.current.certificate.issued_at))


def test_a_certificate_is_renewed_at_half_of_its_life_and_shown_then() -> None:
    broker = Broker()
    broker.renewal.renew_next(broker.swap)
    broker.renewal.renew_next(broker.swap)
    assert broker.swaps == [(44_200.0, 44_200.0), (87_400.0, 87_400.0)]


def test_a_clock_that_is_set_ahead_is_noticed_within_a_minute() -> None:
    broker = Broker()
    broker.renewal.renew_next(broker.swap)
    assert max(broker.waited) <= 60


def test_other_authorities_are_taken_at_once_and_reported_when_they_are_in_use() -> None:
    broker = Broker()
    broker.renewal.follow("first")
    broker.authorities = "second"
    reported: list[str] = []
    broker.on_wait = lambda: broker.renewal.follow("second")
    broker.renewal.renew_next(lambda: reported.append(broker.renewal.authorities))
    assert len(broker.waited) == 1 and reported == ["first"], "its server has not changed yet"
    assert broker.renewal.authorities == "second"


def test_one_change_is_one_renewal() -> None:
    broker = Broker()
    broker.authorities = "third"
    broker.renewal.follow("second")  # and the leader had changed again before the login
    broker.renewal.renew_next(broker.swap)
    assert broker.now == 1000.0
    broker.renewal.renew_next(broker.swap)
    assert broker.now == 44_200.0, "an answer of before the login does not count"
