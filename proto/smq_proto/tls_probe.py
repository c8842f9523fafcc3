"""Whether a server speaks TLS. Nothing but the first message of a handshake is sent, and nothing is trusted."""

from __future__ import annotations

import socket
from contextlib import suppress

from smq_core.model.addresses import split_address

TIMEOUT_SECONDS = 1.0
# The type of the record with which a TLS server answers (RFC 8446, section 5.1).
HANDSHAKE = b"\x16"


def speaks_tls(address: str) -> bool:
    """``address`` is host:port. Blocks for two seconds at most."""
    import ssl  # imported here: most processes never need it

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    hello = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), hello).do_handshake()
    try:
        with socket.create_connection(split_address(address), TIMEOUT_SECONDS) as connection:
            connection.sendall(hello.read())
            return connection.recv(1) == HANDSHAKE
    except (OSError, ValueError):
        return False
