"""What a program is given to enter a secure release: the roots that it trusts, and its token or its certificate."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, TypedDict

from smq.transport.security.certificate_files import CertificateFiles, read_file
from smq_core.errors import InvalidRequest, Unauthenticated

_PEM_CERTIFICATE = b"-----BEGIN CERTIFICATE-----"
# The most bytes of a token's file. Servers end headers at 8,000 bytes.
MAX_TOKEN_BYTES = 7000


class SecurityOptions(TypedDict, total=False):
    """The arguments of ``smq.connect`` that are paths."""

    ca_file: str
    token_file: str
    cert_file: str
    key_file: str


@dataclass(frozen=True, slots=True)
class SecurityFiles:
    """``ca_file`` has the roots of the release, in PEM. ``token_file`` has the token, unless ``token`` is one.

    In place of a token a program may have a client ``certificate``. Files are read at each use, because others replace
    them before what is in them expires.
    """

    ca_file: str
    token_file: str | None = None
    token: str | None = field(default=None, repr=False)
    certificate: CertificateFiles | None = None

    def __reduce__(self) -> Any:
        if self.token is not None:
            raise InvalidRequest("a token is not sent to another process: pass token_file in place of token")
        return SecurityFiles, (self.ca_file, self.token_file, None, self.certificate)

    def roots(self) -> bytes:
        """The roots, in PEM. Raises InvalidRequest if there are none in the file."""
        found = read_file("CA", self.ca_file)
        if _PEM_CERTIFICATE not in found:
            raise InvalidRequest(f"the CA file {self.ca_file} has no certificate in PEM")
        return found

    def read_token(self) -> str:
        """The token as it is now; empty if the program has none. Raises Unauthenticated if a file has none.

        That of a certificate is signed now.
        """
        if self.token is not None:
            return self.token
        if self.certificate is not None:
            return self.certificate.sign_token(self.roots())
        if self.token_file is None:
            return ""
        try:
            found = Path(self.token_file).read_text(encoding="ascii").strip()
        except OSError as error:
            self._refuse(f"cannot be read: {error.strerror}")
        except ValueError:
            self._refuse("has no token: it is no text of ASCII")
        if not is_token(found):
            self._refuse("has no token" if not found else "has something else than one token in one line")
        return found

    def _refuse(self, why: str) -> NoReturn:
        raise Unauthenticated(f"the token file {self.token_file} {why}")


def is_token(text: str) -> bool:
    """Whether it can be sent in a header."""
    return 0 < len(text) <= MAX_TOKEN_BYTES and all(33 <= ord(character) <= 126 for character in text)


def security_files(
    *,
    ca_file: str | os.PathLike[str] | None = None,
    token: str | None = None,
    token_file: str | os.PathLike[str] | None = None,
    cert_file: str | os.PathLike[str] | None = None,
    key_file: str | os.PathLike[str] | None = None,
) -> SecurityFiles | None:
    """What is given, or else what the environment says; None without security. Raises InvalidRequest."""
    if token is None and token_file is None and cert_file is None:
        token, token_file = os.environ.get("SMQ_TOKEN") or None, os.environ.get("SMQ_TOKEN_FILE") or None
        cert_file = os.environ.get("SMQ_CERT_FILE") or None
        key_file = key_file or os.environ.get("SMQ_KEY_FILE") or None
    if sum(it is not None for it in (token, token_file, cert_file)) > 1:
        raise InvalidRequest(
            "a program proves who it is by one thing: give only one of token (SMQ_TOKEN), token_file (SMQ_TOKEN_FILE) "
            "and cert_file (SMQ_CERT_FILE)"
        )
    if key_file is not None and cert_file is None:
        raise InvalidRequest("a key file belongs to a certificate: pass cert_file (or SMQ_CERT_FILE), too")
    ca_file = ca_file or os.environ.get("SMQ_CA_FILE") or None
    if ca_file is None:
        if token is not None or token_file is not None or cert_file is not None:
            raise InvalidRequest(
                "a token without a CA file would travel in clear text: pass ca_file (or SMQ_CA_FILE), the file with "
                "the roots of the release"
            )
        return None
    if token is not None and not is_token(token):
        raise InvalidRequest("the token is none: it has to be one line of ASCII without blanks")
    certificate = CertificateFiles(os.fspath(cert_file), os.fspath(key_file or cert_file)) if cert_file else None
    return SecurityFiles(
        os.fspath(ca_file), os.fspath(token_file) if token_file is not None else None, token, certificate
    )
