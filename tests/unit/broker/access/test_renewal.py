"""The broker's certificate is renewed at half of its life, in virtual time."""

from __future__ import annotations

from smq_broker.access.credentials import BrokerCredentials, Login
from smq_broker.access.renewal import CertificateRenewal
from smq_core.access.certificates import Certificate
from smq_proto.signed_grants import GrantVerifier


def test_a_certificate_is_renewed_at_half_of_its_life_and_shown_then() -> None:
    now = 1000.0

    def login() -> Login:
        certificate = Certificate(chain=b"", key=b"", roots=b"", issued_at=now, expires_at=now + 86_400)
        return Login("release-1", certificate, GrantVerifier([]))

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    credentials = BrokerCredentials(login())
    swaps: list[tuple[float, float]] = []
    renewal = CertificateRenewal(
        credentials,
        log_in=login,
        on_renewal=lambda: swaps.append((now, credentials.current.certificate.issued_at)),
        clock=lambda: now,
        sleep=sleep,
    )
    renewal.renew_next()
    renewal.renew_next()
    assert swaps == [(44_200.0, 44_200.0), (87_400.0, 87_400.0)]


def test_a_clock_that_is_set_ahead_is_noticed_within_a_minute() -> None:
    now = 0.0
    certificate = Certificate(chain=b"", key=b"", roots=b"", issued_at=0.0, expires_at=86_400.0)
    login = Login("release-1", certificate, GrantVerifier([]))
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        nonlocal now
        slept.append(seconds)
        now = 80_000.0

    CertificateRenewal(
        BrokerCredentials(login), log_in=lambda: login, on_renewal=lambda: None, clock=lambda: now, sleep=sleep
    ).renew_next()
    assert len(slept) == 1 and slept[0] <= 60
