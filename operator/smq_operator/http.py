"""/healthz, /readyz and /metrics: the smallest HTTP server that a probe and a scraper need."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from smq_core.errors import InvalidRequest
from smq_operator.settings import host_port

READ_WITHIN = 5.0
TEXT = "text/plain; charset=utf-8"


class HttpServer:
    """``ready`` returns an empty text, or why the leader is not ready; ``metrics`` the exposition and its type."""

    def __init__(self, ready: Callable[[], str], metrics: Callable[[], tuple[bytes, str]]) -> None:
        self._ready = ready
        self._metrics = metrics
        self._server: asyncio.Server | None = None

    async def start(self, listen: str) -> int:
        """Returns the port. Raises InvalidRequest when it cannot be had."""
        host, port = host_port(listen)
        try:
            self._server = await asyncio.start_server(self._serve, host, port)
        except OSError as error:
            raise InvalidRequest(
                f"cannot listen on {listen} for HTTP ({error.strerror}): choose another port with --http"
            ) from None
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    def _answer(self, path: str) -> tuple[str, bytes, str]:
        match path.split("?")[0]:
            case "/healthz":
                return "200 OK", b"ok\n", TEXT
            case "/readyz":
                why = self._ready()
                return ("503 Service Unavailable", f"{why}\n".encode(), TEXT) if why else ("200 OK", b"ok\n", TEXT)
            case "/metrics":
                body, kind = self._metrics()
                return "200 OK", body, kind
        return "404 Not Found", b"there are /healthz, /readyz and /metrics\n", TEXT

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(READ_WITHIN):
                head = await reader.readuntil(b"\r\n\r\n")
                parts = head.split(b" ", 2)
                status, body, kind = self._answer(parts[1].decode("latin-1") if len(parts) > 2 else "")
                writer.write(
                    f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
                    "Connection: close\r\n\r\n".encode()
                    + body
                )
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            return
        finally:
            writer.close()
