"""Searches what was seen for secrets, however they are written."""

from __future__ import annotations

import base64
import pickle
import re
import traceback
from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

import smq

# Whatever has these is a secret, also one that this test does not know.
PATTERNS = (rb"PRIVATEKEY-----", rb"eyJ[\w-]{20,}\.eyJ", rb"X-Amz-Signature=", rb"smq-broker\.[\w.-]+\.[0-9a-f]{64}")


class SecretSearch:
    """``forms`` are how a secret may be written, by its name; ``places`` is what was seen, by where."""

    def __init__(self) -> None:
        self.forms: dict[str, list[bytes]] = {}
        self.places: dict[str, bytes] = {}

    def add_token(self, name: str, token: str) -> None:
        """Its beginning is enough, which is a secret, too."""
        self.add_bytes(name, token.strip()[:24].encode())

    def add_pem(self, name: str, pem: bytes) -> None:
        """The number that is the key: each encoding of the key has it."""
        key = load_pem_private_key(pem, None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        number = key.private_numbers().private_value
        self.add_bytes(name, number.to_bytes(32))
        self.forms[name].append(str(number).encode())

    def add_bytes(self, name: str, secret: bytes) -> None:
        assert len(secret) >= 16
        # Base64 of a text around it depends on where it begins; its first and last characters do on the neighbours.
        encoded = [base64.b64encode(bytes(shift) + secret)[4 * (shift > 0) : -4].rstrip(b"=") for shift in range(3)]
        urlsafe = [it.translate(bytes.maketrans(b"+/", b"-_")) for it in encoded]
        self.forms[name] = [secret, secret.hex().encode(), repr(secret)[2:-1].encode(), *encoded, *urlsafe]

    def know_login(self, client: smq.Client, who: str) -> None:
        """The key that the leader has signed for it, and how its objects are shown."""
        credentials = client._target.dialer.credentials
        assert credentials is not None
        self.add_pem(f"the key with which {who} reaches brokers", credentials.certificate().key)
        for it in (client, client.admin(), client._target, credentials, credentials.certificate()):
            self.see("reprs", f"{it!r} {it}")

    def see(self, where: str, what: str | bytes) -> None:
        self.places[where] = self.places.get(where, b"") + (what if isinstance(what, bytes) else what.encode())

    def fails(self, where: str, call: Callable[[], object]) -> None:
        """Keeps all that a program can print or send of the exception."""
        with pytest.raises(smq.SmqError) as caught:
            call()
        error = caught.value
        shown = "".join(traceback.format_exception(error))
        self.see(f"exception of {where}", f"{error}\n{error!r}\n{shown}".encode() + pickle.dumps(error))

    def found(self) -> list[tuple[str, str]]:
        """Which secret is where. Lines of PEM, also in JSON, are joined first."""
        found = []
        for where, text in self.places.items():
            joined = re.sub(rb"\s|\\n", b"", text)
            found += [
                (name, where) for name, forms in self.forms.items() if any(it in text or it in joined for it in forms)
            ]
            found += [(repr(it), where) for it in PATTERNS if re.search(it, joined)]
        return found
