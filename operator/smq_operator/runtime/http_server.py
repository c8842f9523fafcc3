"""Serves /healthz and /readyz for probes, /metrics for Prometheus, and pages for people."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress

from aiohttp import web
from aiohttp.typedefs import Handler

from smq_core.errors import InvalidRequest
from smq_core.model.http_hosts import is_cluster_host
from smq_operator.runtime.settings import host_port
from smq_storage.process.listeners import create_listener

# How long a client may take for a request, for its next one, and to read an answer. A browser connects again.
TIMEOUT_SECONDS = 5.0
# At once. One more ends the oldest one, because a probe that fails ends the leader. A browser has at most six.
MAX_CONNECTIONS = 100


class HttpServer:
    """``ready`` returns why the leader is not ready, or an empty text; ``metrics`` the exposition and its type.

    ``add_pages`` adds further paths, for GET only. ``hosts`` are public names under which a proxy serves the pages.
    """

    def __init__(
        self,
        *,
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
        application = web.Application(middlewares=[self._send_in_time, self._check_host])
        application.router.add_get("/healthz", self._healthz)
        application.router.add_get("/readyz", self._readyz)
        application.router.add_get("/metrics", self._serve_metrics)
        add_pages(application.router)
        application.router.add_get("/{path:.*}", self._not_found)
        self._runner = web.AppRunner(application, handle_signals=False, shutdown_timeout=1.0)
        self._listener: asyncio.Server | None = None
        self._connections: dict[_Connection, asyncio.Transport] = {}

    async def start(self, listen: str) -> int:
        """Returns the port. Raises InvalidRequest if it cannot listen there."""
        host, port = host_port(listen)
        await self._runner.setup()
        try:
            listener = create_listener(host, port)
        except OSError as error:
            raise InvalidRequest(
                f"cannot listen on {listen} for HTTP ({error.strerror}): choose another port with --http"
            ) from None
        self._listener = await asyncio.get_running_loop().create_server(self._accept, sock=listener)
        bound: int = listener.getsockname()[1]
        return bound

    async def stop(self) -> None:
        """Closes the port and every connection. May be called at any time."""
        if self._listener is not None:
            self._listener.close()
        await self._runner.cleanup()

    def _accept(self) -> _Connection:
        for oldest in list(self._connections)[: len(self._connections) + 1 - MAX_CONNECTIONS]:
            self._connections.pop(oldest).abort()
        assert self._runner.server is not None
        return _Connection(self._runner.server, self._connections)

    @web.middleware
    async def _send_in_time(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Ends the connection of a client that does not read its answer."""
        response = await handler(request)
        with suppress(TimeoutError):
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await response.prepare(request)
                await response.write_eof()
                return response
        if request.transport is not None:
            request.transport.abort()
        return response

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


class _Connection(web.RequestHandler):
    """In ``connections`` from its beginning until its end, even while it waits for a client to read the rest."""

    __slots__ = ("_connections",)

    def __init__(self, server: web.Server, connections: dict[_Connection, asyncio.Transport]) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]
            keepalive_timeout=TIMEOUT_SECONDS,  # also for the first request
            lingering_time=0,  # no request has a body
        )
        self._connections = connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert isinstance(transport, asyncio.Transport)
        self._connections[self] = transport

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        self._connections.pop(self, None)
