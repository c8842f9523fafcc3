"""``/healthz``, ``/readyz`` and ``/metrics`` over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from smq_broker.runtime.settings import split_address

ReadinessCheck = Callable[[], str | None]


class HealthServer:
    """``not_ready_reason`` returns None if the broker is ready. ``address`` has the bound port."""

    def __init__(self, listen: str, registry: CollectorRegistry, not_ready_reason: ReadinessCheck) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = self.path.split("?", 1)[0]
                if path == "/healthz":
                    self._answer(200, b"ok\n")
                elif path == "/readyz":
                    reason = not_ready_reason()
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

        self._server = ThreadingHTTPServer(split_address(listen), Handler)
        self._server.daemon_threads = True
        host = split_address(listen)[0]
        self.address = f"{host}:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, name="http", daemon=True).start()


MAX_DRAIN_WAIT_SECONDS = 60.0
"""How long a new broker stays unready at most while another one drains."""
FIRST_ANSWER_TIMEOUT_SECONDS = 5.0
"""How long a new broker waits for the first answer of a leader. Without a leader no broker drains."""


class Readiness:
    """Keeps a new broker unready while another one drains, so that a rolling update replaces one broker at a time.

    Times are seconds of a monotonic clock. ``has_leader``: the broker has the address of a leader.
    """

    def __init__(self, has_leader: bool, now: float) -> None:
        self._began = now
        self._ready = not has_leader

    def not_ready_reason(self, others_drain: bool | None, now: float) -> str | None:
        """Why this broker is not ready yet, or None. ``others_drain`` is None before the first answer of a leader."""
        waited = now - self._began
        if not self._ready and others_drain is None and waited < FIRST_ANSWER_TIMEOUT_SECONDS:
            return "waiting for a leader"
        if not self._ready and others_drain and waited < MAX_DRAIN_WAIT_SECONDS:
            return "another broker drains"
        self._ready = True
        return None
