"""Recognises callers by client certificates of an authority that the user runs.

A caller signs a token with the key of its certificate (``smq_proto.certificate_tokens``). So these callers need no
other port, and the connection to the leader is the same for everybody.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import jwt
from cryptography import x509
from cryptography.x509.oid import NameOID
from cryptography.x509.verification import Criticality, ExtensionPolicy, Policy, PolicyBuilder, Store, VerificationError
from jwt.exceptions import PyJWTError

from smq_core.errors import InvalidRequest, Unauthenticated
from smq_operator.runtime.external_callers import ClientAuthoritySettings
from smq_operator.security.callers import Caller
from smq_operator.security.identities.external_caller import LEEWAY_SECONDS, MAX_GROUPS, external_caller
from smq_operator.security.watched_file import WatchedFile
from smq_proto.certificate_tokens import (
    LIFE_SECONDS,
    MAX_CHAIN,
    UNREADABLE,
    algorithm_of,
    audiences,
    chain_of,
    is_certificate_token,
)

METHOD = "ClientCertificate"


class CertificateTokens:
    """``roots`` returns the release's own bundle. ``clock`` returns seconds since the Unix epoch.

    Raises InvalidRequest if the file with the authorities cannot be read.
    """

    def __init__(
        self, settings: ClientAuthoritySettings, roots: Callable[[], bytes], clock: Callable[[], float]
    ) -> None:
        self._prefix = settings.prefix
        self._file = WatchedFile(settings.ca_file, _authorities)
        self._roots = roots
        self._clock = clock

    def recognises(self, token: str) -> bool:
        return is_certificate_token(token)

    async def verify(self, token: str) -> Caller:
        """Raises Unauthenticated."""
        now = self._clock()
        try:
            leaf, *between = chain_of(token)
            _verifier(self._file.current(), now).verify(leaf, between)
            claims = jwt.decode(
                token,
                leaf.public_key(),  # type: ignore[arg-type]  # algorithm_of refuses keys that jwt does not know
                algorithms=[algorithm_of(leaf)],
                audience=audiences(self._roots()),
                options={"require": ["exp", "iat", "aud"], "verify_exp": False, "verify_iat": False},
            )
            expires_at, issued_at = float(claims["exp"]), float(claims["iat"])
        except VerificationError as error:
            raise Unauthenticated(
                f"the client certificate does not count here: {error}. It has to be signed by an authority in the "
                "leader's --client-ca-file, for the use of clients, and not to have expired"
            ) from None
        except (PyJWTError, InvalidRequest, *UNREADABLE) as error:
            raise Unauthenticated(f"the token of this client certificate does not count here: {error}") from None
        if not issued_at - LEEWAY_SECONDS <= now <= min(expires_at, issued_at + LIFE_SECONDS) + LEEWAY_SECONDS:
            raise Unauthenticated(
                "the token of this client certificate has expired, or is from the future: compare the clocks"
            )
        return self._caller(leaf)

    def _caller(self, leaf: x509.Certificate) -> Caller:
        names = _texts(leaf.subject, NameOID.COMMON_NAME)
        if len(names) != 1:
            raise Unauthenticated("the subject of a client certificate needs one CN, which says whose it is")
        groups = _texts(leaf.subject, NameOID.ORGANIZATION_NAME)
        if len(groups) > MAX_GROUPS:
            raise Unauthenticated(f"the subject of this client certificate has more than {MAX_GROUPS} of O")
        identity = ("the CN of a client certificate", names[0])
        labels = [("an O of a client certificate", group) for group in groups]
        expires_at = leaf.not_valid_after_utc.timestamp()
        return external_caller(self._prefix, identity, labels, method=METHOD, expires_at=expires_at)


def _verifier(authorities: list[x509.Certificate], now: float) -> x509.verification.ClientVerifier:
    """RFC 5280 as browsers apply it, but with what openssl makes by default, too.

    A client may be named by its subject alone, as in Kubernetes, and an authority need not say what its key is for.
    """
    clients = ExtensionPolicy.webpki_defaults_ee()
    for kind in (x509.SubjectAlternativeName, x509.AuthorityKeyIdentifier):
        clients = clients.may_be_present(kind, Criticality.AGNOSTIC, None)
    authorities_above = ExtensionPolicy.webpki_defaults_ca().may_be_present(
        x509.KeyUsage, Criticality.AGNOSTIC, _check_usage
    )
    return (
        PolicyBuilder()
        .store(Store(authorities))
        .time(datetime.fromtimestamp(now, UTC))
        .max_chain_depth(MAX_CHAIN - 1)
        .extension_policies(ca_policy=authorities_above, ee_policy=clients)
        .build_client_verifier()
    )


def _check_usage(_: Policy, __: x509.Certificate, usage: x509.KeyUsage | None) -> None:
    if usage is not None and not usage.key_cert_sign:
        raise ValueError("the key of this authority is not for signing certificates")


def _authorities(text: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(text)
    except UNREADABLE:
        raise InvalidRequest("it has no certificate in PEM, or a damaged one") from None


def _texts(subject: x509.Name, what: x509.ObjectIdentifier) -> list[str]:
    return [it.value for it in subject.get_attributes_for_oid(what) if isinstance(it.value, str)]
