"""A small OpenID Connect issuer: a server of HTTP on loopback, whose tokens are signed by real keys."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

AUDIENCE = "smq"
PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


def new_key(algorithm: str, bits: int = 2048) -> PrivateKey:
    if algorithm.startswith("ES"):
        return ec.generate_private_key(ec.SECP256R1())
    return ed25519.Ed25519PrivateKey.generate() if algorithm == "EdDSA" else rsa.generate_private_key(65537, bits)


def described(key: PrivateKey, key_id: str, **more: str) -> dict[str, Any]:
    """The public key as a JSON Web Key."""
    if isinstance(key, rsa.RSAPrivateKey):
        made = RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
    elif isinstance(key, ec.EllipticCurvePrivateKey):
        made = ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
    else:
        made = OKPAlgorithm.to_jwk(key.public_key(), as_dict=True)
    return {**made, "kid": key_id, **more}


class Issuer:
    """``listed`` is what it says of its keys, ``calls`` are the paths that were fetched.

    ``extra`` goes into its description; ``body`` is what it answers in place of its keys, which are elsewhere if
    they have ``moved``. Use it as a context manager.
    """

    def __init__(self) -> None:
        self.keys: dict[str, tuple[PrivateKey, str]] = {}
        self.listed: list[dict[str, Any]] = []
        self.calls: list[str] = []
        self.body: bytes | None = None
        self.status = 200
        self.moved = False
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.calls.append(self.path)
                content = issuer.answer(self.path)
                moved = issuer.moved and self.path == "/keys"
                self.send_response(302 if moved else issuer.status)
                if moved:
                    self.send_header("Location", f"{issuer.url}/other-keys")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.extra: dict[str, str] = {}
        self.add_key("first")

    def add_key(self, key_id: str, algorithm: str = "RS256") -> None:
        key = new_key(algorithm)
        self.keys[key_id] = key, algorithm
        self.listed.append(described(key, key_id))

    def answer(self, path: str) -> bytes:
        if path == "/.well-known/openid-configuration":
            return json.dumps({"issuer": self.url, "jwks_uri": f"{self.url}/keys"} | self.extra).encode()
        return self.body if self.body is not None else json.dumps({"keys": self.listed}).encode()

    def token(self, key_id: str = "first", **claims: Any) -> str:
        """One for an hour. A claim that is None is left out."""
        key, algorithm = self.keys[key_id]
        all_claims = {"iss": self.url, "aud": AUDIENCE, "sub": "alice", "exp": time.time() + 3600} | claims
        given = {name: value for name, value in all_claims.items() if value is not None}
        return jwt.encode(given, key, algorithm, headers={"kid": key_id})

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Issuer:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
