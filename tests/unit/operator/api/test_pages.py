"""Lists in pages: what is in a page, and that all pages together are the list."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from smq_core.model.entities import Reason, SealedSegment
from smq_core.model.keyspace import KeyRange
from smq_core.reconcile.retention import Removal
from smq_operator.api import pages
from smq_operator.api.pages import page_of
from smq_proto.pages import all_pages
from smq_proto.v1 import admin_pb2, groups_pb2, topics_pb2
from smq_proto.wire import removed_from_pb
from smq_storage.catalog import group_positions
from smq_storage.object_store.store import open_store
from support.in_memory.brokers import FakeFleet
from support.in_memory.leader import FakePlatform, LeaderInMemory, running_leader
from support.virtual_time import virtual_time
from support.waiting import wait_until

NAMES = [f"ns-{n % 3}/t-{n}" for n in range(5)]


class Sized:
    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.size = size

    def ByteSize(self) -> int:
        return self.size


def names_of(*sizes: tuple[str, int]) -> tuple[list[str], str]:
    page, token = page_of((name, Sized(name, size)) for name, size in sizes)
    return [it.name for it in page], token


def test_a_page_ends_when_it_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "PAGE_BYTES", 10)
    assert names_of() == ([], "")
    assert names_of(("a", 4), ("b", 5)) == (["a", "b"], "")
    assert names_of(("a", 4), ("b", 6), ("c", 1)) == (["a", "b"], "b")
    assert names_of(("a", 99), ("b", 1)) == (["a"], "a"), "one entry may be larger"
    assert names_of(("a", 10), ("a", 10), ("b", 1)) == (["a", "a"], "a"), "entries with the same key stay together"


@asynccontextmanager
async def leader_of_pages(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LeaderInMemory]:
    """Each page has one entry."""
    monkeypatch.setattr(pages, "PAGE_BYTES", 0)
    store = open_store("memory://")
    fleet, platform = FakeFleet(store), FakePlatform()
    for name in "abc":
        fleet.add(name)
    for name in NAMES:
        platform.add_topic(name)
    leader = LeaderInMemory(platform, fleet, store)
    async with running_leader(leader):
        await wait_until(lambda: all(name in leader.topics and leader.topics[name].is_stable for name in NAMES))
        yield leader


async def pages_of(leader: LeaderInMemory, method: str, request: Any) -> list[Any]:
    found: list[Any] = []
    while not found or found[-1].next_page_token:
        request.page_token = found[-1].next_page_token if found else ""
        found.append(await leader.call(method, request))
    return found


@virtual_time
async def test_all_pages_have_all_topics_brokers_and_groups_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async with leader_of_pages(monkeypatch) as leader:
        topics = await pages_of(leader, "ListTopics", admin_pb2.ListTopicsRequest())
        assert [[it.info.name for it in page.topics] for page in topics] == [[name] for name in sorted(NAMES)]
        brokers = await pages_of(leader, "ListBrokers", admin_pb2.ListBrokersRequest())
        assert [[it.name for it in page.brokers] for page in brokers] == [["a"], ["b"], ["c"]]
        for group in ("z", "a", "b.1"):
            await leader.call("JoinGroup", groups_pb2.JoinGroupRequest(topic=NAMES[0], group=group))
        listings: list[str] = []
        listed = group_positions.list_groups
        monkeypatch.setattr(
            group_positions, "list_groups", lambda *given: [listings.append(given[1]), *listed(*given)][1:]
        )
        groups = await pages_of(leader, "ListGroups", groups_pb2.ListGroupsRequest(topic=NAMES[0]))
        assert [[it.name for it in page.groups] for page in groups] == [["a"], ["b.1"], ["z"]]
        assert listings == [NAMES[0]], "the files are read once for all pages"


@virtual_time
async def test_the_last_page_of_a_history_has_what_was_removed_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    async with leader_of_pages(monkeypatch) as leader:
        index = leader.topics[NAMES[0]].index
        entries = {number: sealed(number) for number in (100, 9, 20)}
        index.add(entries.values())
        listed = await pages_of(leader, "History", topics_pb2.HistoryRequest(topic=NAMES[0]))
        assert [[it.number for it in page.segments] for page in listed] == [[9], [20], [100]]
        index.remove([Removal(entries[9], "it is old")], now=0)
        listed[1:] = await pages_of(
            leader, "History", topics_pb2.HistoryRequest(topic=NAMES[0], page_token=listed[0].next_page_token)
        )
        assert [page.HasField("removed") for page in listed[1:]] == [False, True]
        assert removed_from_pb(listed[-1].removed) == (((9, 10),), {entries[9].name: 5})


def sealed(number: int) -> SealedSegment:
    return SealedSegment(
        name=f"t-0-64-{number}",
        number=number,
        range=KeyRange(0, 64),
        end=5,
        sealed_because=Reason.ROLL,
        sealed_at=0,
    )


def test_a_client_follows_all_pages() -> None:
    requested = []

    def call(request: admin_pb2.ListBrokersRequest, timeout: float) -> admin_pb2.BrokerList:
        requested.append((request.page_token, timeout))
        return admin_pb2.BrokerList(next_page_token={"": "a", "a": "b"}.get(request.page_token, ""))

    assert len(list(all_pages(call, admin_pb2.ListBrokersRequest(), timeout=3.0))) == 3
    assert requested == [("", 3.0), ("a", 3.0), ("b", 3.0)]
