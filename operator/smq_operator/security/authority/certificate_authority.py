"""The certificate authority of a release: it signs the certificates of leader, brokers and clients.

Keys are of the curve P-256 and certificates X.509 v3 (RFC 5280). PEM everywhere. An authority that a user gives may
have a key of RSA, too.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from smq_core.access.authority_rotation import CertificateLives
from smq_core.access.certificates import Certificate
from smq_core.access.peers import Peer
from smq_core.access.server_hosts import is_ip_address
from smq_core.errors import InvalidRequest, Unavailable
from smq_proto.certificate_tokens import UNREADABLE

# A certificate counts from a little before its issue, because clocks differ.
CLOCK_SKEW_SECONDS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorityKeys:
    """``chain`` is the authority's own certificate, then those between it and its root; ``key`` is its private key.

    ``cross`` is a certificate of its key by the authority before it, for those who only trust that one. It is empty if
    there is none.
    """

    chain: bytes
    key: bytes = field(repr=False)
    cross: bytes = b""

    @property
    def trusted(self) -> bytes:
        """By what others verify certificates of this authority: its own one, in PEM.

        It is not the root above it, because that may sign for others, who do not belong to this release.
        """
        return first_certificate(self.chain).public_bytes(serialization.Encoding.PEM)


class CertificateAuthority:
    """``roots`` is the bundle by which others verify what this authority signs; None means its own certificate.

    Raises InvalidRequest if key and certificates do not fit.
    """

    def __init__(self, release: str, keys: AuthorityKeys, roots: bytes | None = None) -> None:
        self.release = release
        self.keys = keys
        self.roots = keys.trusted if roots is None else roots
        self._certificate = first_certificate(keys.chain)
        self._key = _private_key(keys.key, self._certificate)
        self._sent = keys.cross or _without_root(keys.chain)

    @classmethod
    def create(
        cls,
        release: str,
        *,
        now: float,
        lives: CertificateLives | None = None,
        former: CertificateAuthority | None = None,
    ) -> CertificateAuthority:
        """A new root for the release with this uid. ``now`` is in seconds since the Unix epoch.

        Those who only know the root of ``former`` trust what the new one signs, for as long as that root counts.
        """
        lives = lives or CertificateLives()
        key = ec.generate_private_key(ec.SECP256R1())
        # Each has another name, because some libraries find the root of a certificate by its name alone.
        name = x509.Name(
            [
                x509.NameAttribute(NameOID.COMMON_NAME, f"SeaweedMQ release {secrets.token_hex(4)}"),
                x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, release[:64]),
            ]
        )
        root = _authority_builder(name, name, key.public_key(), now, now + lives.authority).sign(key, hashes.SHA256())
        cross = b"" if former is None else former.cross_certificate(root, now)
        chain = root.public_bytes(serialization.Encoding.PEM)
        return cls(release, AuthorityKeys(chain=chain, key=_pem_key(key), cross=cross))

    @property
    def expires_at(self) -> float:
        return self._certificate.not_valid_after_utc.timestamp()

    def end_of(self, expires_at: float) -> int:
        """When a certificate ends that should end at ``expires_at``: not after the authority itself."""
        return int(min(expires_at, self.expires_at))

    def cross_certificate(self, root: x509.Certificate, now: float) -> bytes:
        """A certificate of that root by this authority; empty if this one may not sign authorities, or has expired."""
        if not _is_root(self._certificate) or now >= self.expires_at:
            return b""
        key = root.public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey)
        builder = _authority_builder(self._certificate.subject, root.subject, key, now, self.expires_at)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def issue(self, peer: Peer, *, now: float, server_names: Sequence[str] = ()) -> Certificate:
        """A certificate with a new key, for a peer of this release, until ``peer.expires_at``.

        With ``server_names``, which are DNS names and IP addresses, the peer may be a server, too. ``now`` is in
        seconds since the Unix epoch. Raises InvalidRequest if the peer is one of another release, or has expired;
        Unavailable if this authority has.
        """
        if peer.release != self.release:
            raise InvalidRequest(f"this authority is that of release {self.release}, not {peer.release}")
        if now >= self.expires_at:
            raise Unavailable("the authority of this release has expired: renew it, and the release goes on by itself")
        if peer.expires_at <= now:
            raise InvalidRequest("a certificate ends after it was issued")
        key = ec.generate_private_key(ec.SECP256R1())
        # A common name has 64 characters at most; nobody reads it but people.
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, peer.role.value)])
        names = [x509.UniformResourceIdentifier(peer.uri), *map(_general_name, server_names)]
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if server_names else [])]
        builder = _builder(self._certificate.subject, subject, key.public_key(), now, peer.expires_at)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_key_usage(signs_certificates=False), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        builder = builder.add_extension(self._key_identifier(), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return Certificate(
            chain=certificate.public_bytes(serialization.Encoding.PEM) + self._sent,
            key=_pem_key(key),
            roots=self.roots,
            issued_at=now,
            expires_at=peer.expires_at,
        )

    def _key_identifier(self) -> x509.AuthorityKeyIdentifier:
        """By which those who verify find this authority among those of one name."""
        try:
            known = self._certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        except x509.ExtensionNotFound:
            return x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(known)


def _general_name(host: str) -> x509.GeneralName:
    return x509.IPAddress(ip_address(host)) if is_ip_address(host) else x509.DNSName(host)


def given_authority(chain: bytes, key: bytes) -> AuthorityKeys:
    """An authority that a user gives. Raises InvalidRequest if it cannot sign for a release."""
    certificate = first_certificate(chain)
    _private_key(key, certificate)
    with _readable("its certificate"):
        _without_root(chain)
        try:
            constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
        except x509.ExtensionNotFound:
            constraints = None
    if constraints is None or not constraints.ca:
        raise InvalidRequest("its certificate is not that of an authority: cert-manager makes one with isCA: true")
    return AuthorityKeys(chain=chain, key=key)


def first_certificate(chain: bytes) -> x509.Certificate:
    """Raises InvalidRequest if there is none."""
    with _readable("the certificate of the authority"):
        return x509.load_pem_x509_certificates(chain)[0]


def _private_key(key: bytes, certificate: x509.Certificate) -> ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey:
    with _readable("the key of the authority", "without a password"):
        loaded = serialization.load_pem_private_key(key, password=None)
    if not isinstance(loaded, (ec.EllipticCurvePrivateKey, rsa.RSAPrivateKey)):
        raise InvalidRequest("the key of the authority is neither one of RSA nor one of an elliptic curve")
    with _readable("the certificate of the authority"):
        fits = loaded.public_key() == certificate.public_key()
    if not fits:
        raise InvalidRequest("the key of the authority is none of its certificate")
    return loaded


@contextmanager
def _readable(what: str, but: str = "") -> Iterator[None]:
    """Turns what the library raises into InvalidRequest. Its text is left out, because it may quote a key."""
    try:
        yield
    except UNREADABLE as error:
        needed = f"PEM {but}".strip()
        raise InvalidRequest(
            f"{what} is damaged, no {needed}, or of a kind that is not supported ({type(error).__name__}): "
            "use X.509 with a key of RSA or of a curve such as P-256"
        ) from None


def _is_root(certificate: x509.Certificate) -> bool:
    return certificate.subject == certificate.issuer


def _without_root(chain: bytes) -> bytes:
    """What is sent with a certificate: whoever verifies it has the root."""
    found = [it for it in x509.load_pem_x509_certificates(chain) if not _is_root(it)]
    return b"".join(it.public_bytes(serialization.Encoding.PEM) for it in found)


def _builder(
    issuer: x509.Name, subject: x509.Name, public_key: ec.EllipticCurvePublicKey, now: float, expires_at: float
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().issuer_name(issuer).subject_name(subject).public_key(public_key)
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(datetime.fromtimestamp(now - CLOCK_SKEW_SECONDS, UTC))
    return builder.not_valid_after(datetime.fromtimestamp(expires_at, UTC))


def _authority_builder(
    issuer: x509.Name, subject: x509.Name, public_key: ec.EllipticCurvePublicKey, now: float, expires_at: float
) -> x509.CertificateBuilder:
    builder = _builder(issuer, subject, public_key, now, expires_at)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    builder = builder.add_extension(_key_usage(signs_certificates=True), critical=True)
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
