"""Fetch sessions: a client that fetches the same partitions again and again sends and gets what has changed."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from smq_broker.kafka.apis import fetch_sessions
from smq_broker.kafka.apis.fetch import FetchApi
from smq_broker.kafka.apis.fetch_sessions import IDLE_SECONDS, FetchSession, FetchSessions, InvalidSession, WantedTopic
from smq_broker.kafka.partitions.tail_reader import Watches
from smq_broker.kafka.protocol.fetch_response import FetchResponse
from smq_broker.kafka.protocol.messages import ClientConnection, RequestContext
from smq_broker.kafka.protocol.sessions import Session
from smq_core.model.chunk_info import SealOutcome
from support.waiting import HANG_GUARD
from unit.broker.kafka.test_fetch import Broker, request, until


class Client:
    """A client with one session."""

    def __init__(self, broker: Broker, api: FetchApi, offsets: dict[int, int], *, identity: str = "") -> None:
        self.broker = broker
        self.api = api
        self.offsets = offsets
        self.id = self.epoch = 0
        self.version = 12
        login = Session(identity, "t", "PLAIN") if identity else None
        self.connection = ClientConnection("peer:1", login)

    async def send(
        self, *, changed: dict[int, int] | None = None, wait_seconds: float = 0, **more: Any
    ) -> FetchResponse:
        offsets = self.offsets if changed is None else changed
        body = request(self.broker, offsets=offsets, wait_seconds=wait_seconds, version=self.version)
        more = {"session_id": self.id, "session_epoch": self.epoch} | more
        if not offsets:
            more["topics"] = ()
        response = await self.api.fetch(
            dataclasses.replace(body, **more), RequestContext(None, self.version, self.connection)
        )
        if not response.error_code:
            self.id, self.epoch = response.session_id, self.epoch + 1
        return response

    async def next(self, *, changed: dict[int, int] | None = None, wait_seconds: float = 0, **more: Any) -> list[int]:
        """The partitions in the response of the next request."""
        response = await self.send(changed=changed or {}, wait_seconds=wait_seconds, **more)
        assert response.error_code == 0
        return [it.partition for topic in response.topics for it in topic.partitions]


@pytest.fixture
def broker() -> Broker:
    return Broker()


async def client_of(broker: Broker, offsets: dict[int, int] | None = None) -> Client:
    client = Client(broker, broker.fetch_api(asyncio.get_running_loop()), offsets or {0: 0, 1: 0, 2: 0})
    response = await client.send()
    assert response.session_id > 0
    assert [it.partition for topic in response.topics for it in topic.partitions] == list(client.offsets)
    return client


async def test_a_request_without_changes_reads_nothing_and_gets_nothing(broker: Broker) -> None:
    client = await client_of(broker)
    broker.tails.reads.clear()
    assert await client.next() == []
    assert broker.tails.reads.total() == 0


async def test_a_response_has_the_partitions_with_new_messages(broker: Broker) -> None:
    client = await client_of(broker)
    broker.append(1)
    broker.append(3)  # which the client does not fetch
    assert await client.next() == [1]
    assert await client.next() == [1], "the client has not said that it has the messages"
    assert await client.next(changed={1: 1}) == []
    waiting = asyncio.ensure_future(client.next(wait_seconds=HANG_GUARD))
    await asyncio.sleep(0)
    broker.append(2)
    assert await waiting == [2]


async def test_partitions_come_and_go(broker: Broker) -> None:
    client = await client_of(broker)
    broker.append(0)
    broker.append(3)
    topic = _Forgotten(broker.name, (0,))
    assert await client.next(changed={3: 0}, forgotten_topics_data=(topic,)) == [3]
    assert await client.next(changed={3: 1}) == []


@dataclasses.dataclass
class _Forgotten:
    topic: str
    partitions: tuple[int, ...]


async def test_partitions_take_turns_when_a_response_is_full(broker: Broker) -> None:
    client = await client_of(broker)
    for _ in range(2):
        broker.append(0)
        broker.append(1)
    first = await client.next(max_bytes=1)
    assert len(first) >= 1
    second = await client.next(changed={first[0]: 1}, max_bytes=1)
    assert second[0] != first[0]


async def test_an_error_is_in_each_response_until_the_client_reacts(broker: Broker) -> None:
    client = await client_of(broker)
    with broker.hosted as machine:
        machine.fence()
    with broker.hosted as machine:
        machine.sealed(SealOutcome(segment=broker.hosted.name, end=0))
    for _ in range(2):
        response = await client.send(changed={}, wait_seconds=HANG_GUARD)
        assert {it.error_code for topic in response.topics for it in topic.partitions} == {6}
    assert not broker.hosted.watchers, "nobody watches a segment that nobody reads"
    topic = _Forgotten(broker.name, (0, 1, 2))
    assert await client.next(forgotten_topics_data=(topic,)) == []


async def test_a_session_belongs_to_one_client_and_has_one_next_request(broker: Broker) -> None:
    client = await client_of(broker)
    client.epoch = 7
    assert (await client.send(changed={})).error_code == ErrorCode.invalid_fetch_session_epoch.value
    client.epoch = 1
    other = Client(broker, client.api, client.offsets, identity="ada")
    other.id, other.epoch = client.id, 1
    assert (await other.send(changed={})).error_code == ErrorCode.fetch_session_id_not_found.value
    client.version = 17
    assert (await client.send(changed={})).error_code == ErrorCode.fetch_session_topic_id_error.value
    client.version = 12
    assert await client.next() == []
    former = client.id
    client.epoch = 0  # it begins another one
    assert (await client.send()).session_id != former
    client.id, client.epoch = former, 2
    assert (await client.send(changed={})).error_code == ErrorCode.fetch_session_id_not_found.value


async def test_a_request_of_no_session_leaves_nothing_behind(broker: Broker) -> None:
    client = Client(broker, broker.fetch_api(asyncio.get_running_loop()), {0: 0})
    client.epoch = -1
    assert (await client.send()).session_id == 0
    assert not broker.hosted.watchers


async def test_a_client_that_disconnects_while_it_waits_may_begin_again(broker: Broker) -> None:
    client = await client_of(broker)
    waiting = asyncio.ensure_future(client.next(wait_seconds=HANG_GUARD))
    await until(lambda: client.api._sessions._by_id[client.id].is_busy)
    assert (await client.send(changed={}, session_epoch=2)).error_code == ErrorCode.invalid_fetch_session_epoch.value
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    broker.append(1)
    client.epoch = 2
    assert await client.next() == [1]


def session_of(broker: Broker, partitions: int) -> FetchSession:
    session = FetchSession(identity="", watches=Watches(broker.tails))
    topic = WantedTopic("t", "t")
    for number in range(partitions):
        session.put(topic, _Partition(number))
    return session


@dataclasses.dataclass
class _Partition:
    partition: int
    fetch_offset: int = 0


def test_sessions_have_a_limit_and_end_when_they_are_idle(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "MAX_SESSION_PARTITIONS", 10)
    now = 0.0
    sessions = FetchSessions(lambda: now)
    first, second, third = session_of(broker, 6), session_of(broker, 6), session_of(broker, 6)
    sessions.keep(first)
    sessions.keep(second)
    assert first.id > 0 and second.id == 0
    now = IDLE_SECONDS + 1
    sessions.keep(third)
    assert third.id > 0 and first.is_ended
    now += IDLE_SECONDS + 1
    with pytest.raises(InvalidSession):
        sessions.find(1, 1, "", uses_ids=False)
    assert third.is_ended, "also if nobody begins another one"


async def test_a_topic_goes_with_its_last_partition(broker: Broker) -> None:
    client = await client_of(broker)
    ((session,),) = [list(client.api._sessions._by_id.values())]
    await client.next(forgotten_topics_data=(_Forgotten(broker.name, (0, 1)), _Forgotten("never", (0,))))
    assert [sorted(it.partitions) for it in session.topics.values()] == [[2]]
    await client.next(forgotten_topics_data=(_Forgotten(broker.name, (2,)),))
    assert not session.topics and not session.partitions


async def test_a_session_that_grows_too_large_ends(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    client = await client_of(broker)
    monkeypatch.setattr(fetch_sessions, "MAX_SESSION_PARTITIONS", 3)
    assert await client.next(changed={3: 0}) == [3], "this request is answered all the same"
    assert (await client.send(changed={})).error_code == ErrorCode.fetch_session_id_not_found.value
    assert not broker.hosted.watchers


async def test_topics_without_partitions_take_no_memory(broker: Broker) -> None:
    client = await client_of(broker)
    ((session,),) = [list(client.api._sessions._by_id.values())]
    body = request(broker, offsets={0: 0}, wait_seconds=0)
    names = tuple(dataclasses.replace(body.topics[0], topic=f"t{number}", partitions=()) for number in range(10))
    await client.next(changed={0: 0}, topics=names)
    assert [it.name for it in session.topics.values()] == [broker.name]
