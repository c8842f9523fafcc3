"""All that a leader of a release with security has. A release without it has none of these."""

from __future__ import annotations

from dataclasses import dataclass

from smq_operator.security.access.access_control import AccessControl
from smq_operator.security.authority.authorities import Authorities
from smq_operator.security.authority.certificate_authority import CertificateAuthority
from smq_operator.security.authority.leader_certificate import LeaderCertificate
from smq_proto.signed_grants import GrantSigner


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderSecurity:
    """Only code that puts parts together takes this; a part takes the parts that it needs."""

    authorities: Authorities
    certificate: LeaderCertificate
    grants: GrantSigner
    access: AccessControl

    @property
    def authority(self) -> CertificateAuthority:
        """The one that signs now."""
        return self.authorities.signing
