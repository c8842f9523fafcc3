"""The leader's own certificate: it signs itself, and is renewed while the process runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import grpc
import structlog

from smq_core.access.certificates import Certificate
from smq_core.access.peers import LEADER_SERVER_NAME, Peer, Role
from smq_core.errors import SmqError
from smq_operator.security.authority.authorities import Authorities
from smq_operator.security.authority.certificate_authority import CertificateAuthority

log = structlog.get_logger(__name__)


class LeaderCertificate:
    """``name`` is the id of this leader's process; ``clock`` returns seconds since the Unix epoch.

    Any thread may call it: two of them may renew it at the same time, and both certificates count.
    """

    def __init__(self, authorities: Authorities, name: str, clock: Callable[[], float]) -> None:
        self._authorities = authorities
        self._name = name
        self._clock = clock
        self._signed_by = authorities.signing
        self._certificate = self._issue(self._signed_by)

    def current(self) -> Certificate:
        """The certificate to use for a new connection.

        It is replaced after half of its life, and when another authority signs or another bundle is trusted.
        """
        signing = self._authorities.signing
        if signing is not self._signed_by or self._clock() >= self._certificate.renew_at():
            try:
                self._certificate, self._signed_by = self._issue(signing), signing
                log.info("certificate.renewed", expires_at=self._certificate.expires_at)
            except SmqError as error:
                log.error("certificate.not_renewed", message=error.message)
        return self._certificate

    def _issue(self, authority: CertificateAuthority) -> Certificate:
        now = self._clock()
        expires_at = authority.end_of(now + self._authorities.lives.server)
        peer = Peer(Role.LEADER, authority.release, self._name, expires_at)
        return authority.issue(peer, now=now, server_names=[LEADER_SERVER_NAME])

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
