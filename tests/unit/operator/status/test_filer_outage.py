"""An outage of the filer is shown by what the leader and the brokers meet, and Ready follows what producers meet."""

from __future__ import annotations

import asyncio
import urllib.request
from typing import Any

from smq_core.errors import StoreUnavailable
from smq_operator.runtime.http_server import HttpServer
from smq_operator.status.health import FILER, FILER_FAILS_AFTER_US
from smq_proto.v1 import admin_pb2, brokers_pb2
from smq_storage.catalog import paths
from smq_storage.object_store.store import Store, open_store
from support.in_memory.brokers import FakeFleet
from support.in_memory.leader import FakePlatform, LeaderInMemory, running_leader
from support.virtual_time import virtual_time
from support.waiting import wait_until

NAME = "default/t"


class FullFiler:
    """A store that takes no new object at the place of the filer's clock while it is ``full``."""

    def __init__(self, store: Store) -> None:
        self._store, self.full = store, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def put(self, path: str, data: bytes) -> str:
        if self.full and path == paths.CLOCK:
            raise StoreUnavailable("507 Insufficient Storage")
        return self._store.put(path, data)


class Outage:
    def __init__(self) -> None:
        self.filer = FullFiler(open_store("memory://"))
        self.fleet, self.platform = FakeFleet(self.filer), FakePlatform(1)  # type: ignore[arg-type]
        self.broker = self.fleet.add("b0")
        self.platform.add_topic(NAME, replicas=1)
        self.leader = LeaderInMemory(self.platform, self.fleet, self.filer)  # type: ignore[arg-type]

    def conditions(self) -> dict[str, tuple[str, str]]:
        found = (self.leader.condition(NAME, type_) for type_ in ("Ready", "FilerAvailable"))
        return {it.type: (it.status, it.reason) for it in found}

    async def opened(self) -> None:
        leader = self.leader
        await wait_until(lambda: NAME in leader.topics and leader.topics[NAME].is_stable and leader.tasks.idle)
        await wait_until(lambda: leader.health.warmed_up)


@virtual_time
async def test_a_leader_that_cannot_write_says_so_until_it_can() -> None:
    it = Outage()
    async with running_leader(it.leader):
        await it.opened()
        it.filer.full = True
        await wait_until(lambda: it.conditions()["FilerAvailable"] == ("False", "LeaderCannotWrite"))
        assert it.conditions()["Ready"] == ("True", "AcceptingMessages"), "producers do not meet it yet"
        listed = await it.leader.call("ListTopics", admin_pb2.ListTopicsRequest())
        assert isinstance(listed, admin_pb2.TopicList)
        assert "507" in next(problem.message for problem in listed.problems if problem.where == FILER)
        it.filer.full = False
        await wait_until(lambda: it.conditions()["FilerAvailable"] == ("True", "Writable"))
        assert not it.leader.tasks.problems.all()


@virtual_time
async def test_what_brokers_and_their_producers_meet_counts() -> None:
    it = Outage()
    async with running_leader(it.leader):
        await it.opened()
        report = it.broker.report

        def failing(leader: str = "") -> brokers_pb2.BrokerReport:
            made = report(leader)
            made.status.filer_problem, made.status.filer_failing_seconds = "disk full", FILER_FAILS_AFTER_US / 1e6
            for segment in made.status.segments:
                segment.stalled_seconds = 11.0
            return made

        it.broker.report = failing  # type: ignore[method-assign]
        expected = {"Ready": ("False", "FilerUnavailable"), "FilerAvailable": ("False", "BrokersCannotWrite")}
        await wait_until(lambda: it.conditions() == expected)
        assert "broker b0: disk full" in it.leader.condition(NAME, "Ready").message
        it.broker.report = report  # type: ignore[method-assign]
        healthy = {"Ready": ("True", "AcceptingMessages"), "FilerAvailable": ("True", "Writable")}
        await wait_until(lambda: it.conditions() == healthy)


async def readyz(server: HttpServer) -> tuple[int, str]:
    port = await server.start("127.0.0.1:0")
    try:
        url = f"http://127.0.0.1:{port}/readyz"
        answer = await asyncio.to_thread(urllib.request.urlopen, url)
        return answer.status, answer.read().decode()
    finally:
        await server.stop()


async def test_readyz_names_an_outage_and_keeps_the_leader_reachable() -> None:
    assert await readyz(HttpServer(ready=lambda: "", metrics=lambda: (b"", ""), warning=lambda: "the filer")) == (
        200,
        "the filer\n",
    )
    assert await readyz(HttpServer(ready=lambda: "", metrics=lambda: (b"", ""))) == (200, "ok\n")
