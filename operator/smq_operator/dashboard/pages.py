"""The HTTP handlers of the page: ``/`` is one HTML file that asks ``/overview.json`` every two seconds."""

from __future__ import annotations

from importlib.resources import files

from aiohttp import web

from smq_operator.dashboard.overview import Overview

# The page loads nothing from elsewhere, and nothing else may embed it.
SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class DashboardPages:
    """Answers only to GET and HEAD, and changes nothing."""

    def __init__(self, overview: Overview) -> None:
        self._overview = overview
        self._html = files("smq_operator.dashboard").joinpath("page.html").read_text(encoding="utf-8")

    def add_to(self, router: web.UrlDispatcher) -> None:
        router.add_get("/", self._page)
        router.add_get("/overview.json", self._answer)

    async def _page(self, request: web.Request) -> web.Response:
        return web.Response(text=self._html, content_type="text/html", headers=SECURITY_HEADERS)

    async def _answer(self, request: web.Request) -> web.Response:
        since = request.query.get("since", "0")
        if not (since.isascii() and since.isdigit() and len(since) < 20):
            return web.Response(text="since must be a time in microseconds, such as 0\n", status=400)
        answer = self._overview.answer(request.query.get("topic"), int(since))
        return web.json_response(answer, headers=SECURITY_HEADERS)
