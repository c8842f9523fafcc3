"""The certificate authority of a release: it signs the certificates of leader, brokers and clients.

Keys are of the curve P-256 and certificates X.509 v3 (RFC 5280). PEM everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from smq_core.access.certificates import Certificate
from smq_core.access.peers import Peer
from smq_core.errors import InvalidRequest

ROOT_LIFETIME_SECONDS = 10 * 365 * 24 * 3600
# A certificate counts from a little before its issue, because clocks differ.
CLOCK_SKEW_SECONDS = 300
_ROOT_NAME = "SeaweedMQ release"


class CertificateAuthority:
    """``chain`` is the authority's own certificate, and those above it if it is not a root; ``key`` is its key.

    ``roots`` is the bundle by which others verify what it signs; None means ``chain``.
    Raises InvalidRequest if they do not fit, or belong to no release.
    """

    def __init__(self, chain: bytes, key: bytes, roots: bytes | None = None) -> None:
        try:
            self._certificate = x509.load_pem_x509_certificates(chain)[0]
            loaded = serialization.load_pem_private_key(key, password=None)
            organizations = self._certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATIONAL_UNIT_NAME)
            self.release = str(organizations[0].value)
        except (ValueError, TypeError, IndexError) as error:
            raise InvalidRequest(f"these are no certificate and key of a release's authority: {error}") from error
        if not isinstance(loaded, ec.EllipticCurvePrivateKey) or loaded.public_key() != self._certificate.public_key():
            raise InvalidRequest("the key of the release's authority is none of its certificate")
        self._key = loaded
        self._chain = chain
        self.roots = roots if roots is not None else chain

    @classmethod
    def create(cls, release: str, *, now: float) -> CertificateAuthority:
        """A new root for the release with this uid. ``now`` is in seconds since the Unix epoch."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name(
            [
                x509.NameAttribute(NameOID.COMMON_NAME, _ROOT_NAME),
                x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, release),
            ]
        )
        builder = _builder(name, name, key.public_key(), now, now + ROOT_LIFETIME_SECONDS)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        builder = builder.add_extension(_key_usage(signs_certificates=True), critical=True)
        certificate = builder.sign(key, hashes.SHA256())
        return cls(certificate.public_bytes(serialization.Encoding.PEM), _pem_key(key))

    def to_pem(self) -> tuple[bytes, bytes]:
        """Its chain and its key, as the constructor takes them."""
        return self._chain, _pem_key(self._key)

    def issue(self, peer: Peer, *, now: float, server_names: Sequence[str] = ()) -> Certificate:
        """A certificate with a new key, for a peer of this release, until ``peer.expires_at``.

        With ``server_names``, which are DNS names, the peer may be a server, too. ``now`` is in seconds since the Unix
        epoch. Raises InvalidRequest if the peer is one of another release, or has expired.
        """
        if peer.release != self.release:
            raise InvalidRequest(f"this authority is that of release {self.release}, not {peer.release}")
        if peer.expires_at <= now:
            raise InvalidRequest("a certificate ends after it was issued")
        key = ec.generate_private_key(ec.SECP256R1())
        # A common name has 64 characters at most; nobody reads it but people.
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, peer.role.value)])
        names = [x509.UniformResourceIdentifier(peer.uri), *(x509.DNSName(name) for name in server_names)]
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if server_names else [])]
        builder = _builder(self._certificate.subject, subject, key.public_key(), now, peer.expires_at)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_key_usage(signs_certificates=False), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return Certificate(
            chain=certificate.public_bytes(serialization.Encoding.PEM) + self._chain,
            key=_pem_key(key),
            roots=self.roots,
            issued_at=now,
            expires_at=peer.expires_at,
        )


def _builder(
    issuer: x509.Name, subject: x509.Name, public_key: ec.EllipticCurvePublicKey, now: float, expires_at: float
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().issuer_name(issuer).subject_name(subject).public_key(public_key)
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(datetime.fromtimestamp(now - CLOCK_SKEW_SECONDS, UTC))
    return builder.not_valid_after(datetime.fromtimestamp(expires_at, UTC))


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
