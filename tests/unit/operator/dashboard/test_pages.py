"""Who gets the page of a secure release."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from aiohttp import BaseConnector, ClientSession, TCPConnector, UnixConnector, web

from smq_operator.dashboard.pages import DashboardPages, is_loopback

LOOPBACK = [("127.0.0.1", 8080), ("127.8.0.1", 1), ("::1", 8080, 0, 0), ("::ffff:127.0.0.1", 8080, 0, 0)]
OTHERS = [("10.0.0.7", 8080), ("0.0.0.0", 1), ("fd00::7", 8080, 0, 0), ("::ffff:10.0.0.7", 1, 0, 0), "/socket", None]


@pytest.mark.parametrize("address", LOOPBACK)
def test_what_port_forward_carries_comes_to_loopback(address: object) -> None:
    assert is_loopback(address)


@pytest.mark.parametrize("address", OTHERS)
def test_nobody_else_comes_to_loopback(address: object) -> None:
    assert not is_loopback(address)


@pytest.mark.parametrize("at_loopback_only", [True, False])
async def test_the_page_is_served_to_whom_it_is_for(tmp_path: Path, at_loopback_only: bool) -> None:
    """By a Unix socket comes somebody who has not connected to loopback."""
    application, path = web.Application(), str(tmp_path / "socket")
    overview = SimpleNamespace(answer=lambda topic, since: {})
    DashboardPages(overview, at_loopback_only=at_loopback_only).add_to(application.router)  # type: ignore[arg-type]
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port = runner.addresses[0][1]
        await web.UnixSite(runner, path).start()
        assert await statuses(TCPConnector(), port) == {200}
        assert await statuses(UnixConnector(path), port) == ({403} if at_loopback_only else {200})
    finally:
        await runner.cleanup()


async def statuses(connector: BaseConnector, port: int) -> set[int]:
    async with ClientSession(connector=connector) as session:
        found = set()
        for path in ("/", "/overview.json"):
            async with session.get(f"http://127.0.0.1:{port}{path}") as answer:
                found.add(answer.status)
                assert answer.status == 200 or "kubectl port-forward" in await answer.text()
        return found
