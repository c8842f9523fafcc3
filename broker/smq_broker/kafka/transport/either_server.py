"""Accepts connections in TLS and in clear text at one port, while a release is being secured.

The first byte of a connection says which it is. It is left where it is, so that whoever serves the connection reads it.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import TypeAlias

import structlog

from smq_broker.kafka.transport.tls import HANDSHAKE_SECONDS, SHUTDOWN_SECONDS
from smq_storage.process.shared_port import FIRST_BYTE_SECONDS, TLS_HANDSHAKE

# Connections that have sent nothing yet. More than that are no clients.
MAX_WAITING = 1_000
# After an accept that failed, as it does while the process has no more descriptors.
RETRY_SECONDS = 0.5

MakeProtocol: TypeAlias = Callable[[], asyncio.Protocol]

log = structlog.get_logger(__name__)


class EitherServer:
    """``clear`` and ``tls`` make the protocols of connections. While ``context`` returns None, there is no TLS."""

    def __init__(
        self,
        listener: socket.socket,
        *,
        clear: MakeProtocol,
        tls: MakeProtocol,
        context: Callable[[], ssl.SSLContext | None],
    ) -> None:
        self._listener = listener
        self._clear = clear
        self._tls = tls
        self._context = context
        self._waiting: set[asyncio.Task[None]] = set()

    async def serve(self, backlog: int) -> None:
        """Until it is cancelled. The connections go on."""
        loop = asyncio.get_running_loop()
        self._listener.setblocking(False)
        self._listener.listen(backlog)
        try:
            while True:
                try:
                    connection, _ = await loop.sock_accept(self._listener)
                except OSError as error:
                    log.warning("kafka.accept_failed", error=str(error))
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
                if len(self._waiting) >= MAX_WAITING:
                    connection.close()
                    continue
                self._waiting.add(task := loop.create_task(self._begin(connection)))
                task.add_done_callback(self._waiting.discard)
        finally:
            self._listener.close()
            for task in self._waiting:
                task.cancel()

    async def _begin(self, connection: socket.socket) -> None:
        try:
            connection.setblocking(False)
            async with asyncio.timeout(FIRST_BYTE_SECONDS):
                first = await _first_byte(connection)
            is_tls = first == bytes([TLS_HANDSHAKE])
            context = self._context() if is_tls else None
            if not first or (is_tls and context is None):
                connection.close()
                return
            await asyncio.get_running_loop().connect_accepted_socket(
                self._tls if is_tls else self._clear,
                connection,
                ssl=context,
                ssl_handshake_timeout=HANDSHAKE_SECONDS if is_tls else None,
                ssl_shutdown_timeout=SHUTDOWN_SECONDS if is_tls else None,
            )
        except (OSError, TimeoutError):  # the client has left, said nothing, or does not speak TLS after all
            connection.close()
        except BaseException:
            connection.close()
            raise


async def _first_byte(connection: socket.socket) -> bytes:
    """Empty if the client has left."""
    loop = asyncio.get_running_loop()
    readable = loop.create_future()

    def found() -> None:
        if not readable.done():
            readable.set_result(None)

    loop.add_reader(connection, found)
    try:
        await readable
    finally:
        loop.remove_reader(connection)
    return connection.recv(1, socket.MSG_PEEK)
