"""Connections of HTTP/1.1 that are kept for the next request to the same host."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Mapping
from functools import cache
from http.client import HTTPConnection, HTTPException, HTTPMessage, HTTPSConnection
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit
from urllib.request import getproxies, proxy_bypass

from smq_storage.object_store.clients import CONNECT_TIMEOUT_SECONDS, is_this_machine

# For each host. More threads than these seldom read at once.
KEPT_CONNECTIONS = 32


class Answer(NamedTuple):
    status: int
    headers: HTTPMessage
    body: bytes


class NoAnswer(Exception):
    """``cause`` is for people, and has nothing of the URL."""

    def __init__(self, cause: str) -> None:
        super().__init__(cause)
        self.cause = cause


class Connections:
    """Safe from many threads. ``timeout`` limits a connection and each wait for bytes, in seconds.

    ``proxy`` is an ``http://host:port``; without one that of the environment is used.
    """

    def __init__(self, timeout: float, proxy: str | None) -> None:
        self._timeout = timeout
        self._proxy = proxy
        self._idle: dict[tuple[int, str, str], list[HTTPConnection]] = {}
        """By process, so that a forked one opens its own, and host."""

    def get(self, url: str, headers: Mapping[str, str]) -> Answer:
        """Raises NoAnswer."""
        return self.send("GET", url, headers)

    def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None) -> Answer:
        """Raises NoAnswer. A request is sent again if a connection that was kept turns out to be closed."""
        parts = urlsplit(url)
        proxy = self._proxy_for(parts)
        idle = self._idle.setdefault((os.getpid(), parts.scheme, parts.netloc), [])
        # A proxy of plain HTTP finds the host in the URL; one of TLS connects to it.
        query = f"?{parts.query}" if parts.query else ""
        target = url if proxy and parts.scheme == "http" else f"{parts.path or '/'}{query}"
        while True:
            try:
                connection, is_new = idle.pop(), False
            except IndexError:
                connection, is_new = self._open(parts, proxy), True
            try:
                if is_new:
                    connection.connect()
                    connection.sock.settimeout(self._timeout)
                connection.request(method, target, body, dict(headers))
                response = connection.getresponse()
                answer = Answer(response.status, response.headers, response.read())
            except (OSError, HTTPException) as error:
                connection.close()
                if not is_new and not isinstance(error, TimeoutError):
                    continue  # the host has closed it meanwhile
                raise NoAnswer(_cause(error)) from None
            if not response.will_close and len(idle) < KEPT_CONNECTIONS:
                idle.append(connection)
            else:
                connection.close()
            return answer

    def _open(self, parts: SplitResult, proxy: str | None) -> HTTPConnection:
        through = urlsplit(proxy) if proxy else parts
        host, port = through.hostname or "", through.port
        timeout = min(CONNECT_TIMEOUT_SECONDS, self._timeout)
        if parts.scheme == "http":
            return HTTPConnection(host, port, timeout=timeout)
        connection = HTTPSConnection(host, port, timeout=timeout, context=tls_of_environment())
        if proxy:
            connection.set_tunnel(parts.hostname or "", parts.port)
        return connection

    def _proxy_for(self, parts: SplitResult) -> str | None:
        host = parts.hostname or ""
        if self._proxy or is_this_machine(host) or proxy_bypass(host):
            return self._proxy
        return getproxies().get(parts.scheme)


@cache
def tls_of_environment() -> ssl.SSLContext:
    """Trusts the authorities of the system, or of the variable SSL_CERT_FILE."""
    return ssl.create_default_context()


def _cause(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not accepted ({error.verify_message}): set SSL_CERT_FILE to a file with the "
            "certificate of the authority that signed it (PEM)"
        )
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, socket.gaierror):
        return "the name of its host is not known"
    return "the connection broke"
