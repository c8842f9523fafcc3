"""``/healthz``, ``/readyz`` and ``/metrics`` over HTTP."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from smq_broker.runtime.threads import Task, ThreadSupervisor
from smq_core.model.addresses import join_address, split_address
from smq_core.model.http_hosts import is_cluster_host
from smq_storage.process.listeners import create_listener
from smq_storage.process.locks import make_lock

# At once. Each has a thread. One more ends the oldest one, because a probe that fails ends the broker.
MAX_REQUESTS = 32
# How long a client may send nothing, or not read its answer.
REQUEST_TIMEOUT_SECONDS = 5.0

ReadinessCheck = Callable[[], str | None]

log = structlog.get_logger(__name__)


class HealthServer:
    """``not_ready_reason`` returns None if the broker is ready. ``address`` has the bound port.

    ``/healthz`` fails when ``threads`` says that the process has to end. Raises OSError if the port is taken.
    """

    def __init__(
        self,
        listen: str,
        registry: CollectorRegistry,
        not_ready_reason: ReadinessCheck,
        threads: ThreadSupervisor,
    ) -> None:
        class Handler(BaseHTTPRequestHandler):
            timeout = REQUEST_TIMEOUT_SECONDS

            def do_GET(self) -> None:
                path = self.path.split("?", 1)[0]
                if not is_cluster_host(self.headers.get("Host", "")):
                    self._answer(421, b"use the address or the name in the cluster of this broker\n")
                elif path == "/healthz":
                    failure = threads.process_failure
                    self._answer(503 if failure else 200, f"{failure or 'ok'}\n".encode())
                elif path == "/readyz":
                    reason = threads.process_failure or not_ready_reason()
                    self._answer(503 if reason else 200, f"{reason or 'ok'}\n".encode())
                elif path == "/metrics":
                    self._answer(200, generate_latest(registry), CONTENT_TYPE_LATEST)
                else:
                    self._answer(404, b"there are /healthz, /readyz and /metrics\n")

            def _answer(self, status: int, body: bytes, kind: str = "text/plain; charset=utf-8") -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                return

        host, port = split_address(listen)
        self._server = _Server(create_listener(host, port), Handler, threads)
        self.address = join_address(host, self._server.server_address[1])
        threads.start(Task(kind="http", run=self._server.serve_forever, endless=True))


class _Server(ThreadingHTTPServer):
    def __init__(
        self, listener: socket.socket, handler: type[BaseHTTPRequestHandler], threads: ThreadSupervisor
    ) -> None:
        super().__init__(listener.getsockname(), handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self._supervisor = threads
        self._lock = make_lock()
        self._requests: dict[socket.socket, None] = {}

    def process_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: Any) -> None:
        assert isinstance(request, socket.socket)

        def serve() -> None:
            try:
                self.process_request_thread(request, client_address)
            finally:
                self._forget(request)

        with self._lock:
            for oldest in list(self._requests)[: len(self._requests) + 1 - MAX_REQUESTS]:
                del self._requests[oldest]
                with suppress(OSError):  # it has ended
                    oldest.shutdown(socket.SHUT_RDWR)  # its thread ends
            self._requests[request] = None
        # If one request fails, the others do not.
        try:
            self._supervisor.start(Task(kind="http-request", run=serve, on_death=lambda: None, restarts=False))
        except BaseException:
            self._forget(request)
            raise

    def _forget(self, request: socket.socket) -> None:
        with self._lock:
            self._requests.pop(request, None)

    def handle_error(self, request: socket.socket | tuple[bytes, socket.socket], client_address: Any) -> None:
        if isinstance(sys.exception(), ConnectionError | TimeoutError):
            return  # the client went away, or was too slow
        log.warning("http.request_failed", client=str(client_address), exc_info=True)


# How long a new broker stays unready at most while another one drains.
MAX_DRAIN_WAIT_SECONDS = 60.0


class Readiness:
    """Keeps a new broker unready while another one drains, so that a rolling update replaces one broker at a time.

    It is unready too until a leader has answered, however long that takes. Only a leader moves segments, so without one
    a rolling update would end all brokers with their segments, and writers would stall until a leader is back.

    Times are seconds of a monotonic clock. ``has_leader``: the broker has the address of a leader.
    """

    def __init__(self, has_leader: bool, now: float) -> None:
        self._began = now
        self._ready = not has_leader

    def not_ready_reason(self, others_drain: bool | None, now: float) -> str | None:
        """Why this broker is not ready yet, or None. ``others_drain`` is None before the first answer of a leader."""
        if not self._ready and others_drain is None:
            return "waiting for a leader"
        if not self._ready and others_drain and now - self._began < MAX_DRAIN_WAIT_SECONDS:
            return "another broker drains"
        self._ready = True
        return None
