"""A client certificate that a program has in place of a token."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from smq_core.errors import InvalidRequest, Unauthenticated


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """``cert_file`` has the chain and ``key_file`` the private key, both in PEM; they may be the same file.

    They are read at each use, because others replace them before the certificate expires.
    """

    cert_file: str
    key_file: str

    def sign_token(self, roots: bytes) -> str:
        """A token for the release with these roots, in PEM. Raises Unauthenticated if the files are not whole."""
        try:
            from smq_proto.certificate_tokens import sign_token
        except ModuleNotFoundError as error:
            from smq_storage.process.extras import install_command

            raise Unauthenticated(
                f"a client certificate needs the extra `certificates` ({error.name} is not installed): "
                f"{install_command('certificates')}"
            ) from None
        for is_last in (False, True):
            try:
                chain, key = read_file("certificate", self.cert_file), read_file("key", self.key_file)
                return sign_token(chain=chain, key=key, roots=roots, now=time.time())
            except InvalidRequest as error:  # the first time both files may be just being replaced
                if is_last:
                    raise Unauthenticated(f"the client certificate {self.cert_file}: {error.message}") from None
        raise AssertionError("the last attempt returns or raises")


def read_file(what: str, path: str) -> bytes:
    """Raises InvalidRequest."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InvalidRequest(f"the {what} file {path} cannot be read: {error.strerror}") from None
