"""Whether a server speaks TLS, for the words of an error. No data is sent, and nothing is trusted."""

from __future__ import annotations

import socket

from smq_core.model.addresses import split_address

TIMEOUT_SECONDS = 1.0


def speaks_tls(address: str) -> bool:
    """``address`` is host:port."""
    import ssl  # imported here: only errors need it

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        host, port = split_address(address)
        with (
            socket.create_connection((host, port), TIMEOUT_SECONDS) as connection,
            context.wrap_socket(connection) as encrypted,
        ):
            return encrypted.version() is not None
    except (OSError, ValueError):
        return False
