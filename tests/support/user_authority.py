"""A root of a user, with authorities below it, as cert-manager makes them."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey
PEM = serialization.Encoding.PEM


class UserAuthority:
    """``pem`` is its own certificate. ``above`` signs it, in place of itself."""

    def __init__(self, name: str, above: UserAuthority | None = None) -> None:
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.pem = (above or self)._sign(self._name, self._key, life=3600, is_authority=True)
        self._chain = self.pem + above._chain if above is not None else b""

    def client(
        self,
        *subject: tuple[x509.ObjectIdentifier, str],
        key: PrivateKey | None = None,
        life: float = 600,
        usage: x509.ObjectIdentifier | None = None,
    ) -> tuple[bytes, bytes]:
        """``tls.crt`` and ``tls.key`` of a caller. ``life`` is in seconds."""
        key = key or ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(what, value) for what, value in subject])
        certificate = self._sign(name, key, life=life, is_authority=False, usage=usage)
        return certificate, key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())

    def client_files(self, folder: Path, *subject: tuple[x509.ObjectIdentifier, str]) -> tuple[Path, Path]:
        """``tls.crt``, with the authorities up to the root, and ``tls.key`` of a caller."""
        certificate, key = folder / "tls.crt", folder / "tls.key"
        text, key_text = self.client(*subject)
        certificate.write_bytes(text + self._chain)
        key.write_bytes(key_text)
        return certificate, key

    def intermediate(
        self, name: str, kind: str = "ec", *, life: float = 600, is_authority: bool = True
    ) -> tuple[bytes, bytes]:
        """``tls.crt`` and ``tls.key`` of a certificate with a new key. ``life`` is in seconds."""
        key: PrivateKey = ec.generate_private_key(ec.SECP256R1())
        if kind == "rsa":
            key = rsa.generate_private_key(65537, 2048)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = self._sign(subject, key, life=life, is_authority=is_authority)
        private = key.private_bytes(PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption())
        return certificate, private

    def _sign(
        self,
        subject: x509.Name,
        key: PrivateKey,
        *,
        life: float,
        is_authority: bool,
        usage: x509.ObjectIdentifier | None = None,
    ) -> bytes:
        now = time.time()
        builder = x509.CertificateBuilder().issuer_name(self._name).subject_name(subject).public_key(key.public_key())
        builder = builder.serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(datetime.fromtimestamp(now - 60, UTC))
        builder = builder.not_valid_after(datetime.fromtimestamp(now + life, UTC))
        builder = builder.add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        if usage is not None:
            builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        builder = builder.add_extension(identifier, critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return builder.add_extension(issuer, critical=False).sign(self._key, hashes.SHA256()).public_bytes(PEM)
