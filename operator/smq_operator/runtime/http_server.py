"""Serves /healthz and /readyz for probes, /metrics for Prometheus, and pages for people."""

from __future__ import annotations

from collections.abc import Callable, Collection

from aiohttp import web
from aiohttp.typedefs import Handler

from smq_core.errors import InvalidRequest
from smq_core.model.http_hosts import is_cluster_host
from smq_operator.runtime.settings import host_port
from smq_storage.process.listeners import create_listener

IDLE_SECONDS = 5.0
"""How long a connection stays open after a request. A browser connects again."""


class HttpServer:
    """``ready`` returns why the leader is not ready, or an empty text; ``metrics`` the exposition and its type.

    ``add_pages`` adds further paths, for GET only. ``hosts`` are public names under which a proxy serves the pages.
    """

    def __init__(
        self,
        ready: Callable[[], str],
        metrics: Callable[[], tuple[bytes, str]],
        add_pages: Callable[[web.UrlDispatcher], None] = lambda _: None,
        warning: Callable[[], str] = lambda: "",
        hosts: Collection[str] = (),
    ) -> None:
        """``warning`` is what ``/readyz`` adds while the process is ready: its service must not lose the leader."""
        self._warning = warning
        self._hosts = frozenset(hosts)
        self._ready = ready
        self._metrics = metrics
        application = web.Application(middlewares=[self._check_host])
        application.router.add_get("/healthz", self._healthz)
        application.router.add_get("/readyz", self._readyz)
        application.router.add_get("/metrics", self._serve_metrics)
        add_pages(application.router)
        application.router.add_get("/{path:.*}", self._not_found)
        self._runner = web.AppRunner(
            application, access_log=None, handle_signals=False, shutdown_timeout=1.0, keepalive_timeout=IDLE_SECONDS
        )

    async def start(self, listen: str) -> int:
        """Returns the port. Raises InvalidRequest if it cannot listen there."""
        host, port = host_port(listen)
        await self._runner.setup()
        try:
            await web.SockSite(self._runner, create_listener(host, port)).start()
        except OSError as error:
            raise InvalidRequest(
                f"cannot listen on {listen} for HTTP ({error.strerror}): choose another port with --http"
            ) from None
        bound: int = self._runner.addresses[0][1]
        return bound

    async def stop(self) -> None:
        """Closes the port and every connection. May be called at any time."""
        await self._runner.cleanup()

    @web.middleware
    async def _check_host(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuses a request that a web page sent to its own name, which leads here."""
        if not is_cluster_host(request.headers.get("Host", ""), self._hosts):
            return web.Response(
                text="this name is not served: use an address, a name in the cluster, or one in SMQ_HTTP_HOSTS\n",
                status=421,
            )
        return await handler(request)

    async def _healthz(self, request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, request: web.Request) -> web.Response:
        why = self._ready()
        return web.Response(text=f"{why}\n", status=503) if why else web.Response(text=f"{self._warning() or 'ok'}\n")

    async def _serve_metrics(self, request: web.Request) -> web.Response:
        body, content_type = self._metrics()
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def _not_found(self, request: web.Request) -> web.Response:
        return web.Response(text="use / (a page for people), /healthz, /readyz or /metrics\n", status=404)
