"""Tokens that a caller signs with the key of its certificate: JSON Web Tokens (RFC 7519).

The header has the certificate and what is between it and its root (``x5c``, RFC 7515, 4.1.6). The audience names the
roots by which the caller recognises the leader, so that the token counts in no other release.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import jwt
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.exceptions import PyJWTError

from smq_core.errors import InvalidRequest

# The header ``typ``, by which these are told from other tokens.
TOKEN_TYPE = "smq-certificate+jwt"
# As that of the certificates that a client gets for brokers.
LIFE_SECONDS = 900.0
# The certificate and three authorities; more would not fit into a header.
MAX_CHAIN = 4
# A bundle has two during a rotation.
MAX_ROOTS = 8
_AUDIENCE_PREFIX = "smq-roots:sha256:"
_CURVES = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}

# What the library raises for a certificate or key that is damaged, or of a kind that it does not know. Not all of its
# errors are ValueErrors.
UNREADABLE = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)


def audiences(roots: bytes) -> list[str]:
    """A name for each certificate of a bundle in PEM. Raises InvalidRequest."""
    found = _certificates(roots, "the CA file")
    return [_AUDIENCE_PREFIX + hashlib.sha256(it.public_bytes(_DER)).hexdigest() for it in found[:MAX_ROOTS]]


def sign_token(*, chain: bytes, key: bytes, roots: bytes, now: float) -> str:
    """A token of whoever has ``key``, for the release with these ``roots``. Everything is PEM.

    ``now`` is in seconds since the Unix epoch. Raises InvalidRequest.
    """
    certificates = _certificates(chain, "the certificate file")
    if len(certificates) > MAX_CHAIN:
        raise InvalidRequest(f"the certificate file has {len(certificates)} certificates: {MAX_CHAIN} at most count")
    try:
        private = serialization.load_pem_private_key(key, password=None)
    except UNREADABLE:
        raise InvalidRequest("the key file has no private key in PEM, or one with a password") from None
    algorithm = algorithm_of(certificates[0])
    if private.public_key() != certificates[0].public_key():
        raise InvalidRequest("the private key is not that of the first certificate in the certificate file")
    signing: Any = private
    header = {"typ": TOKEN_TYPE, "x5c": [base64.b64encode(it.public_bytes(_DER)).decode() for it in certificates]}
    claims = {"aud": audiences(roots), "iat": int(now), "exp": int(now + LIFE_SECONDS)}
    return jwt.encode(claims, signing, algorithm=algorithm, headers=header)


def is_certificate_token(token: str) -> bool:
    """Whether it says that it is one. Nothing is verified yet."""
    try:
        return bool(jwt.get_unverified_header(token).get("typ") == TOKEN_TYPE)
    except (PyJWTError, ValueError, RecursionError):
        return False


def chain_of(token: str) -> list[x509.Certificate]:
    """The certificates in a token of this kind; nothing is verified yet. Raises InvalidRequest if there are none."""
    try:
        encoded = jwt.get_unverified_header(token)["x5c"]
        if isinstance(encoded, list) and 0 < len(encoded) <= MAX_CHAIN:
            return [x509.load_der_x509_certificate(base64.b64decode(it, validate=True)) for it in encoded]
    except (PyJWTError, LookupError, RecursionError, *UNREADABLE):
        pass
    raise InvalidRequest(f"it has no chain of one to {MAX_CHAIN} certificates")


def algorithm_of(certificate: x509.Certificate) -> str:
    """The only one that counts for tokens with the key of this certificate. Raises InvalidRequest."""
    try:
        key = certificate.public_key()
    except UNREADABLE:
        key = None
    if isinstance(key, rsa.RSAPublicKey):
        return "PS256"
    if isinstance(key, ed25519.Ed25519PublicKey):
        return "EdDSA"
    if isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name in _CURVES:
        return _CURVES[key.curve.name]
    raise InvalidRequest("the key of the certificate is none of RSA, P-256, P-384, P-521 and Ed25519")


_DER = serialization.Encoding.DER


def _certificates(pem: bytes, what: str) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except UNREADABLE:
        raise InvalidRequest(f"{what} has no certificate in PEM, or a damaged one") from None
