"""The HTTP handlers of the page: ``/`` is one HTML file that asks ``/overview.json`` every two seconds."""

from __future__ import annotations

import ipaddress
from importlib.resources import files

from aiohttp import web
from aiohttp.typedefs import Handler

from smq_operator.dashboard.overview import Overview

# The page loads nothing from elsewhere, and nothing else may embed it.
SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


NOT_SERVED = (
    "this release is secure, and the page knows no callers, so it is served at loopback addresses only: use "
    "`kubectl port-forward`, or name the host of a proxy that authenticates people in SMQ_HTTP_HOSTS\n"
)


class DashboardPages:
    """Answers only to GET and HEAD, and changes nothing.

    ``at_loopback_only``: who connects to another address of this machine is refused. What `kubectl port-forward`
    carries connects to a loopback address of the Pod.
    """

    def __init__(self, overview: Overview, *, at_loopback_only: bool = False) -> None:
        self._overview = overview
        self._at_loopback_only = at_loopback_only
        self._html = files("smq_operator.dashboard").joinpath("page.html").read_text(encoding="utf-8")

    def add_to(self, router: web.UrlDispatcher) -> None:
        router.add_get("/", self._guarded(self._page))
        router.add_get("/overview.json", self._guarded(self._answer))

    def _guarded(self, handler: Handler) -> Handler:
        async def answer(request: web.Request) -> web.StreamResponse:
            # Where the client connected to, because a proxy beside this process connects from loopback for anybody.
            own = request.transport.get_extra_info("sockname") if request.transport is not None else None
            if self._at_loopback_only and not is_loopback(own):
                return web.Response(text=NOT_SERVED, status=403)
            return await handler(request)

        return answer

    async def _page(self, request: web.Request) -> web.Response:
        return web.Response(text=self._html, content_type="text/html", headers=SECURITY_HEADERS)

    async def _answer(self, request: web.Request) -> web.Response:
        since = request.query.get("since", "0")
        if not (since.isascii() and since.isdigit() and len(since) < 20):
            return web.Response(text="since must be a time in microseconds, such as 0\n", status=400)
        answer = self._overview.answer(request.query.get("topic"), int(since))
        return web.json_response(answer, headers=SECURITY_HEADERS)


def is_loopback(address: object) -> bool:
    """Whether a socket has this address of a loopback device."""
    if not isinstance(address, tuple):  # a Unix socket, or one that is closed
        return False
    host = ipaddress.ip_address(address[0])
    return (getattr(host, "ipv4_mapped", None) or host).is_loopback
