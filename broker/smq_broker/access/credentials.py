"""What a login gave this broker: its certificate, its release, and what verifies the grants of clients."""

from __future__ import annotations

from dataclasses import dataclass

from smq_core.access.certificates import Certificate
from smq_proto.signed_grants import GrantVerifier


@dataclass(frozen=True, slots=True)
class Login:
    """``release`` is the uid of the release that this broker belongs to.

    ``authorities`` is the id of those that the certificate's bundle has, and of the one that signed it.
    """

    release: str
    certificate: Certificate
    verifier: GrantVerifier
    authorities: str = ""


class BrokerCredentials:
    """Those of the last login. ``current`` is replaced as a whole, so no lock is needed to read it."""

    def __init__(self, login: Login) -> None:
        self.current = login
