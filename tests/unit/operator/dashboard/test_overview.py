"""The page's JSON says what the leader knows, and its HTTP paths change nothing."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from typing import Any

from smq_core.access.modes import SecurityMode
from smq_operator.dashboard.history import KeyspaceHistory
from smq_operator.dashboard.overview import Overview, ShownLag
from smq_operator.dashboard.pages import DashboardPages
from smq_operator.leader_process import overview_of
from smq_operator.runtime.http_server import HttpServer
from smq_storage.object_store.store import open_store
from support.in_memory.brokers import FakeFleet
from support.in_memory.leader import FakePlatform, LeaderInMemory, running_leader
from support.virtual_time import virtual_time
from support.waiting import HANG_GUARD, wait_until


def leader_with(*topics: str) -> LeaderInMemory:
    store = open_store("memory://")
    fleet, platform = FakeFleet(store), FakePlatform(2)
    for name in ("a", "b"):
        fleet.add(name)
    for topic in topics:
        platform.add_topic(topic, min_segments=2)
    return LeaderInMemory(platform, fleet, store)


async def all_stable(leader: LeaderInMemory) -> None:
    await wait_until(lambda: leader.topics and all(it.is_stable for it in leader.topics.values()))


@virtual_time
async def test_topics_brokers_and_decisions_are_there() -> None:
    leader = leader_with("default/t", "web/u")
    async with running_leader(leader):
        await all_stable(leader)
        overview = overview_of(leader.parts)
        overview.sample()
        answer = overview.answer(None)
    assert [(t["name"], t["segments"], t["issues"]) for t in answer["topics"]] == [
        ("default/t", 2, []),
        ("web/u", 2, []),
    ]
    assert [(b["name"], b["state"]) for b in answer["brokers"]] == [("a", "alive"), ("b", "alive")]
    assert {(d["topic"], d["action"]) for d in answer["decisions"]} == {("default/t", "create"), ("web/u", "create")}
    assert all(d["reason"] for d in answer["decisions"])
    json.dumps(answer)


@virtual_time
async def test_the_chosen_topic_comes_with_its_segments_and_its_history() -> None:
    leader = leader_with("default/t", "web/u")
    async with running_leader(leader):
        await all_stable(leader)
        overview = overview_of(leader.parts)
        overview.sample()
        await asyncio.sleep(2)
        overview.sample()
        whole = overview.answer("web/u")["keyspace"]
        rest = overview.answer("web/u", since=whole["columns"][0]["at"])["keyspace"]
        unknown = overview.answer("web/gone", since=1 << 60)["keyspace"]
    assert whole["topic"] == "web/u" and whole["partitions"] == 16
    assert [column["starts"] for column in whole["columns"]] == [[0, 8], [0, 8]]
    assert rest["columns"] == whole["columns"][1:]
    assert [(s["start"], s["stop"], s["phase"]) for s in whole["segments"]] == [(0, 8, "open"), (8, 16, "open")]
    assert len(unknown["columns"]) == 2, "another topic is shown from the beginning"


@virtual_time
async def test_a_topic_that_needs_attention_says_why() -> None:
    leader = leader_with("default/t")
    leader.platform.add_topic("default/alone", replicas=3)
    async with running_leader(leader):
        await all_stable(leader)
        answer = overview_of(leader.parts).answer(None)
    issues = {t["name"]: [i["type"] for i in t["issues"]] for t in answer["topics"]}
    assert issues == {"default/alone": ["Balanced"], "default/t": []}


@virtual_time
async def test_lags_of_groups_are_shown_with_their_topic() -> None:
    leader = leader_with("default/t")
    parts = leader.parts
    overview = Overview(
        topics=parts.topics,
        registry=parts.registry,
        decisions=parts.decisions,
        health=parts.health,
        clock=parts.clock,
        not_ready_reason=lambda: "",
        lags_of=lambda topic: [ShownLag("report", 7, 1.5)] if topic == "default/t" else [],
        security=SecurityMode.PERMISSIVE,
    )
    async with running_leader(leader):
        await all_stable(leader)
        answer = overview.answer(None)
    assert answer["topics"][0]["lags"] == [{"group": "report", "messages": 7, "seconds": 1.5}]
    assert answer["security"] == "permissive", "the page says who is let in"


@virtual_time
async def test_the_history_grows_by_itself_and_is_bounded() -> None:
    leader = leader_with("default/t")
    parts = leader.parts
    short = KeyspaceHistory(max_rounds=4)
    overview = Overview(
        topics=parts.topics,
        registry=parts.registry,
        decisions=parts.decisions,
        health=parts.health,
        clock=parts.clock,
        not_ready_reason=lambda: "",
        history=short,
    )
    async with running_leader(leader):
        sampling = asyncio.create_task(overview.run())
        await asyncio.sleep(30)
        sampling.cancel()
    assert len(short) == 4


def request(port: int, path: str, method: str = "GET") -> tuple[int, dict[str, str], str]:
    made = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method)
    try:
        with urllib.request.urlopen(made, timeout=HANG_GUARD) as reply:
            return reply.status, dict(reply.headers), reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers), error.read().decode()


async def test_the_page_and_its_json_are_served_for_reading_only() -> None:
    pages = DashboardPages(overview_of(leader_with().parts))
    server = HttpServer(ready=lambda: "", metrics=lambda: (b"", "text/plain"), add_pages=pages.add_to)
    port = await server.start("127.0.0.1:0")

    async def fetch(path: str, method: str = "GET") -> tuple[int, dict[str, str], str]:
        return await asyncio.to_thread(request, port, path, method)

    try:
        status, headers, html = await fetch("/")
        assert status == 200 and headers["Content-Type"] == "text/html; charset=utf-8"
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert "http://" not in html.replace("http://www.w3.org/2000/svg", "") and "https://" not in html
        status, headers, body = await fetch("/overview.json?topic=x&since=5")
        answer: dict[str, Any] = json.loads(body)
        assert status == 200 and answer["topics"] == [] and answer["keyspace"] is None
        for since in ("-1", "x", "1e3", "9" * 30):
            status, _, body = await fetch(f"/overview.json?since={since}")
            assert status == 400 and "microseconds" in body
        for path in ("/", "/overview.json"):
            assert (await fetch(path, "POST"))[0] == (await fetch(path, "DELETE"))[0] == 405
        assert (await fetch("/healthz"))[2] == "ok\n", "the probes are where they were"
    finally:
        await server.stop()
