"""The leader's own certificate: it signs itself, and is renewed while the process runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import grpc
import structlog

from smq_core.access.certificates import Certificate
from smq_core.access.peers import LEADER_SERVER_NAME, Peer, Role
from smq_operator.security.certificate_authority import CertificateAuthority

log = structlog.get_logger(__name__)

LEADER_CERTIFICATE_SECONDS = 24 * 3600


class LeaderCertificate:
    """``name`` is the id of this leader's process; ``clock`` returns seconds since the Unix epoch.

    Any thread may call it: two of them may renew it at the same time, and both certificates count.
    """

    def __init__(self, authority: CertificateAuthority, name: str, clock: Callable[[], float]) -> None:
        self._authority = authority
        self._name = name
        self._clock = clock
        self._certificate = self._issue()

    def current(self) -> Certificate:
        """The certificate to use for a new connection. It is replaced after half of its life."""
        if self._clock() >= self._certificate.renew_at():
            self._certificate = self._issue()
            log.info("certificate.renewed", expires_at=self._certificate.expires_at)
        return self._certificate

    def _issue(self) -> Certificate:
        now = self._clock()
        peer = Peer(Role.LEADER, self._authority.release, self._name, int(now) + LEADER_CERTIFICATE_SECONDS)
        return self._authority.issue(peer, now=now, server_names=[LEADER_SERVER_NAME])

    def server_credentials(self) -> grpc.ServerCredentials:
        """Of a gRPC server. Each new connection gets the certificate of then; those that are open go on."""
        served = self.current()

        def changed() -> grpc.ServerCertificateConfiguration | None:
            nonlocal served
            certificate = self.current()
            if certificate is served:
                return None
            served = certificate
            return _configuration(certificate)

        return grpc.dynamic_ssl_server_credentials(
            _configuration(served),
            cast(Callable[[], grpc.ServerCertificateConfiguration], changed),  # which may return None
            require_client_authentication=False,
        )


def _configuration(certificate: Certificate) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(certificate.key, certificate.chain)])
