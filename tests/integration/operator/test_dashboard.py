"""The leader's page in a real browser: headless Chromium (Debian's package ``chromium``)."""

from __future__ import annotations

import asyncio
import html
import re
import shutil
import subprocess
from array import array
from pathlib import Path

import pytest

from smq_core.model.decision import Decision, DecisionAction
from smq_core.scaling.segment_load import TrafficRates
from smq_operator.dashboard.history import LEVELS_PER_TARGET, Column
from smq_operator.dashboard.pages import DashboardPages
from smq_operator.leader_process import overview_of
from smq_operator.runtime.http_server import HttpServer
from smq_storage.object_store.store import open_store
from support.in_memory.brokers import FakeFleet
from support.in_memory.leader import FakePlatform, LeaderInMemory, running_leader
from support.waiting import HANG_GUARD, wait_until

CHROMIUM = shutil.which("chromium")
SECOND = 1_000_000

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium; install Debian's package of that name"),
]


def rendered(url: str, profile: Path) -> str:
    """The document after its scripts have run for five seconds of the browser's own time, which passes at once."""
    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"]
    more = ["--disable-dev-shm-usage", "--virtual-time-budget=5000", "--dump-dom", url]
    done = subprocess.run([*command, *more], capture_output=True, text=True, timeout=HANG_GUARD, check=True)
    return done.stdout


def column(starts: list[int], load: float) -> Column:
    level = round(load * LEVELS_PER_TARGET)
    return Column(array("H", starts), bytes([level] * len(starts)), TrafficRates(1000 * load, 100_000 * load))


async def test_the_page_shows_what_the_leader_knows(tmp_path: Path) -> None:
    store = open_store("memory://")
    fleet, platform = FakeFleet(store), FakePlatform(2)
    for name in ("broker-a", "broker-b"):
        fleet.add(name)
    platform.add_topic("travel/flights", min_segments=1)
    platform.add_topic("travel/lonely", replicas=3)
    leader = LeaderInMemory(platform, fleet, store)
    async with running_leader(leader, report_seconds=0.2):
        await wait_until(lambda: len(leader.topics) == 2 and all(it.is_stable for it in leader.topics.values()))
        overview, now = overview_of(leader.parts), leader.parts.clock()
        for age, starts, load in (
            (20, [0], 0.5),
            (16, [0], 3.0),
            (12, [0, 4, 8], 0.4),
            (8, [0, 4, 8], 0.1),
            (4, [0], 0.1),
        ):
            overview.history.add(now - age * SECOND, {"travel/flights": column(starts, load)})
        leader.decisions.record(
            Decision(
                at=now,
                topic="travel/flights",
                action=DecisionAction.SPLIT,
                segments=("flights-0-16-0",),
                reason="3 targets <b>too hot</b>",
            )
        )
        server = HttpServer(
            ready=lambda: "", metrics=lambda: (b"", "text/plain"), add_pages=DashboardPages(overview).add_to
        )
        port = await server.start("127.0.0.1:0")
        try:
            page = await asyncio.to_thread(rendered, f"http://127.0.0.1:{port}/", tmp_path)
        finally:
            await server.stop()
    text = html.unescape(re.sub(r"<[^>]+>", " ", page.partition("<script>")[0]))
    assert "2 topics, 2 brokers alive" in text
    assert "Key space of travel/flights" in text, "the busiest topic is shown"
    assert 'id="splits"' in page and 'id="merges"' in page and 'id="rate"' in page
    levels = set(re.findall(r'data-level="(\d+)"', page))
    assert {"4", "11"} <= levels, f"half a target is blue and three are red: {levels}"
    assert "broker-a" in text and "alive" in text
    assert "3 targets <b>too hot</b>" in text and "<b>" not in page.partition("<script>")[0], "texts are no HTML"
    assert re.search(r"Balanced: .*replica", text), "conditions that need attention have their message"
    assert re.search(r'id="notice"[^>]*hidden', page), text
