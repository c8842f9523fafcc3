"""TLS of the listener for Kafka clients, with the broker's certificate, which is replaced without another port."""

from __future__ import annotations

import asyncio
import os
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from smq_core.access.certificates import Certificate

# A client that has a connection and does not finish its handshake within this time loses it.
HANDSHAKE_SECONDS = 10.0
# How long the last bytes of TLS may take.
SHUTDOWN_SECONDS = 2.0
# What all connections of a thread receive into, before it is decrypted.
RECEIVE_BYTES = 256 * 1024
_shared = threading.local()


def share_buffer(transport: asyncio.BaseTransport) -> None:
    """Lets a connection in TLS receive into the buffer of its thread, after the handshake.

    asyncio gives each connection one of 256 KiB, which it fills and empties within one call of the loop.
    """
    protocol: Any = getattr(transport, "_ssl_protocol", None)
    if protocol is None or not hasattr(protocol, "_ssl_buffer_view"):
        return
    if not hasattr(_shared, "buffer"):
        _shared.buffer = bytearray(RECEIVE_BYTES)
    protocol._ssl_buffer, protocol._ssl_buffer_view = _shared.buffer, memoryview(_shared.buffer)


class ServerTls:
    """What a server needs to show the broker's certificate. ``context`` is None before there is one."""

    def __init__(self, certificate: Certificate | None = None) -> None:
        self.context: ssl.SSLContext | None = None
        if certificate is not None:
            self.show(certificate)

    def show(self, certificate: Certificate) -> None:
        """From now on new connections see this certificate. Those that are open go on.

        Call it where connections are accepted: in between the context has a key that is none of its certificate.
        """
        context = self.context
        if context is None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
        with _readable(certificate.chain) as chain, _readable(certificate.key) as key:
            context.load_cert_chain(chain, key)
        self.context = context


@contextmanager
def _readable(content: bytes) -> Iterator[str]:
    """A path from which OpenSSL reads this once. It takes files only, and a key belongs on no disk."""
    source, target = os.pipe()
    try:
        with os.fdopen(target, "wb") as file:
            file.write(content)  # a pipe holds 16 KiB at least; chains have a few
        yield f"/dev/fd/{source}"
    finally:
        os.close(source)
