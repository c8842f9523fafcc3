"""Lists in pages: what is in a page, and that all pages together are the list."""

from __future__ import annotations

import pytest

from smq_operator.api import pages
from smq_operator.api.pages import page_of
from smq_proto.pages import all_pages
from smq_proto.v1 import admin_pb2
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


@virtual_time
async def test_all_pages_have_all_topics_and_brokers_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "PAGE_BYTES", 0)
    store = open_store("memory://")
    fleet, platform = FakeFleet(store), FakePlatform()
    for name in "abc":
        fleet.add(name)
    for name in NAMES:
        platform.add_topic(name)
    leader = LeaderInMemory(platform, fleet, store)
    async with running_leader(leader):
        await wait_until(lambda: all(name in leader.topics for name in NAMES))
        topics, brokers = admin_pb2.ListTopicsRequest(), admin_pb2.ListBrokersRequest()
        found: list[list[str]] = [[], []]
        while True:
            reply = await leader.call("ListTopics", topics)
            found[0] += [topic.info.name for topic in reply.topics]
            if not (token := reply.next_page_token):
                break
            assert len(reply.topics) == 1
            topics.page_token = token
        while True:
            reply = await leader.call("ListBrokers", brokers)
            found[1] += [broker.name for broker in reply.brokers]
            if not (token := reply.next_page_token):
                break
            brokers.page_token = token
        assert found == [sorted(NAMES), ["a", "b", "c"]]


def test_a_client_follows_all_pages() -> None:
    requested = []

    def call(request: admin_pb2.ListBrokersRequest, timeout: float) -> admin_pb2.BrokerList:
        requested.append((request.page_token, timeout))
        return admin_pb2.BrokerList(next_page_token={"": "a", "a": "b"}.get(request.page_token, ""))

    assert len(list(all_pages(call, admin_pb2.ListBrokersRequest(), timeout=3.0))) == 3
    assert requested == [("", 3.0), ("a", 3.0), ("b", 3.0)]
