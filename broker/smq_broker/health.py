"""``/healthz``, ``/readyz`` and ``/metrics`` over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from smq_broker.settings import split_address

Check = Callable[[], str | None]


class HealthServer:
    """``ready`` gives None, or the reason why not. ``port`` is the port that was bound."""

    def __init__(self, listen: str, registry: CollectorRegistry, ready: Check) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = self.path.split("?", 1)[0]
                if path == "/healthz":
                    self._answer(200, b"ok\n")
                elif path == "/readyz":
                    reason = ready()
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
