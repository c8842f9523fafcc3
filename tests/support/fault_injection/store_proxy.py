"""A real HTTP proxy before an S3 store that makes chosen requests fail."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
from dataclasses import dataclass, field
from enum import Enum, auto
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from support.waiting import HANG_GUARD

_Answer = tuple[int, list[tuple[str, str]], bytes]
_CONDITIONS = ("if-none-match", "if-match")


class StoreFault(Enum):
    """The outcome of a request."""

    STORED_BUT_500 = auto()  # applied, and the answer is an error
    ERROR_500 = auto()  # not applied
    CONFLICT_409 = auto()  # not applied
    FORBIDDEN_403 = auto()  # not applied
    MISSING_404 = auto()  # a stale answer, whatever the store has
    DROP_BEFORE = auto()  # not applied, and the connection ends
    DROP_AFTER = auto()  # applied, and the connection ends instead of an answer
    HOLD = auto()  # applied once the rule is released, even if the client is gone
    IGNORE_CONDITIONS = auto()  # an unsupported store ignores If-None-Match and If-Match
    CHECK_THEN_WRITE = auto()  # an unsupported store checks and then writes, not atomically


@dataclass(eq=False)
class FaultRule:
    """Makes ``times`` matching requests fail (None: all), after it has skipped ``skip`` of them."""

    fault: StoreFault
    method: str | None = "PUT"
    contains: str = ""
    times: int | None = 1
    skip: int = 0
    used: int = 0
    release: threading.Event = field(default_factory=threading.Event)
    """Releases held requests."""
    reached: threading.Event = field(default_factory=threading.Event)
    """Set when a request matched this rule."""
    applied: threading.Event = field(default_factory=threading.Event)
    """Set when the store has answered a request that matched this rule."""

    def _takes(self, method: str, path: str) -> bool:
        if (self.method not in (None, method)) or self.contains not in path:
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        if self.times is not None and self.used >= self.times:
            return False
        self.used += 1
        return True


class StoreProxy:
    """The proxy. Without rules it changes nothing. ``with StoreProxy(seaweed.endpoint) as faulty: ...``"""

    def __init__(self, upstream: str) -> None:
        self._upstream = urlsplit(upstream).netloc
        self._rules: list[FaultRule] = []
        self._lock = threading.Lock()
        self.requests: list[tuple[str, str]] = []
        """(method, path with query) of every request, in the order of arrival."""
        owner = self

        class Handler(_Handler):
            faulty = owner

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def add(
        self,
        fault: StoreFault,
        *,
        method: str | None = "PUT",
        contains: str = "",
        times: int | None = 1,
        skip: int = 0,
    ) -> FaultRule:
        """Adds a rule. The first rule that matches a request applies."""
        rule = FaultRule(fault, method, contains, times, skip)
        with self._lock:
            self._rules.append(rule)
        return rule

    def clear(self) -> None:
        """Removes all rules and releases held requests."""
        with self._lock:
            rules, self._rules = self._rules, []
        for rule in rules:
            rule.release.set()

    def count(self, method: str, contains: str = "") -> int:
        with self._lock:
            return sum(1 for m, path in self.requests if m == method and contains in path)

    def __enter__(self) -> StoreProxy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()
        self._server.shutdown()
        self._server.server_close()

    def _rule_for(self, method: str, path: str) -> FaultRule | None:
        with self._lock:
            self.requests.append((method, path))
            return next((rule for rule in self._rules if rule._takes(method, path)), None)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # clients that cancel their requests are expected


class _Handler(BaseHTTPRequestHandler):
    faulty: StoreProxy
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def handle_one(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        rule = self.faulty._rule_for(self.command, self.path)
        if rule is None:
            self._pass_on(self._forward(body))
            return
        rule.reached.set()
        match rule.fault:
            case StoreFault.ERROR_500:
                self._refuse(500, "InternalError")
            case StoreFault.CONFLICT_409:
                self._refuse(409, "ConditionalRequestConflict")
            case StoreFault.FORBIDDEN_403:
                self._refuse(403, "AccessDenied")
            case StoreFault.MISSING_404:
                self._refuse(404, "NoSuchKey")
            case StoreFault.DROP_BEFORE:
                self._drop()
            case StoreFault.DROP_AFTER:
                self._forward(body)
                rule.applied.set()
                self._drop()
            case StoreFault.STORED_BUT_500:
                self._forward(body)
                rule.applied.set()
                self._refuse(500, "InternalError")
            case StoreFault.HOLD:
                rule.release.wait(HANG_GUARD)
                answer = self._forward(body)
                rule.applied.set()
                self._pass_on(answer)
            case StoreFault.IGNORE_CONDITIONS:
                self._pass_on(self._forward(body, without=_CONDITIONS))
            case StoreFault.CHECK_THEN_WRITE:
                self._check_then_write(body)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_one

    def log_message(self, *_: object) -> None:
        pass

    def _check_then_write(self, body: bytes) -> None:
        method, self.command = self.command, "HEAD"
        status, headers, _ = self._forward(b"", without=(*_CONDITIONS, "content-length"))
        self.command = method
        etag = next((value for name, value in headers if name.lower() == "etag"), None) if status == 200 else None
        wanted = self.headers.get("If-Match")
        if etag != wanted:
            self._refuse(412, "PreconditionFailed")
        else:
            self._pass_on(self._forward(body, without=_CONDITIONS))

    def _forward(self, body: bytes, without: tuple[str, ...] = ()) -> _Answer:
        upstream = http.client.HTTPConnection(self.faulty._upstream, timeout=60)
        try:
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in (*without, "connection"):
                    upstream.putheader(name, value)
            upstream.endheaders(body or None)
            answer = upstream.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            upstream.close()

    def _pass_on(self, answer: _Answer) -> None:
        status, headers, body = answer
        self.send_response_only(status)
        length = str(len(body))
        for name, value in headers:
            if name.lower() == "content-length":
                length = value  # an answer to HEAD has a length but no body
            elif name.lower() not in ("transfer-encoding", "connection"):
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(body)

    def _refuse(self, status: int, code: str) -> None:
        body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>injected</Message></Error>".encode()
        self._pass_on((status, [("Content-Type", "application/xml")], b"" if self.command == "HEAD" else body))

    def _drop(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
