"""Connections to brokers: they have the token of the client, and a broker that takes nothing is noticed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry

from smq_broker.kafka.protocol.messages import PRODUCE, ClientConnection
from smq_broker.kafka.protocol.sessions import Session
from smq_broker.kafka.proxy.brokers import client_upstreams
from smq_broker.kafka.proxy.brokers.client_upstreams import ClientUpstreams, taken
from smq_broker.kafka.proxy.brokers.dialer import Dialer
from smq_broker.kafka.proxy.brokers.routes import Routes
from smq_broker.kafka.proxy.brokers.upstream import Upstream, UpstreamLost
from smq_broker.kafka.proxy.proxy_metrics import ProxyMetrics
from support.in_memory.kafka_proxy import Broker, Cluster
from support.waiting import HANG_GUARD

ID = 10
MIB = 1 << 20


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster({0: ID})
    made.start([ID])
    yield made
    made.stop()


def session(token: str) -> Session:
    return Session("me", token, "PLAIN")


def upstreams_of(cluster: Cluster, client: ClientConnection) -> ClientUpstreams:
    routes = Routes()
    routes.learn_nodes(cluster.nodes())
    return ClientUpstreams(client, routes, Dialer(None, ProxyMetrics(CollectorRegistry())))


async def test_a_client_that_logs_in_again_does_so_at_its_brokers(cluster: Cluster) -> None:
    client = ClientConnection("peer:1", session=session("first"))
    upstreams, broker = upstreams_of(cluster, client), cluster.brokers[ID]
    _, former = await upstreams.node(ID)
    assert (await upstreams.node(ID))[1] is former and broker.tokens == ["first"]
    client.session = session("second")
    assert (await upstreams.node(ID))[1] is former, "on the same connection, so that requests keep their order"
    assert broker.tokens == ["first", "second"]
    upstreams.close()


async def test_a_token_that_a_broker_refuses_ends_the_session(cluster: Cluster) -> None:
    client = ClientConnection("peer:1", session=session(Broker.bad_token))
    with pytest.raises(UpstreamLost, match="refuses the token of me"):
        await upstreams_of(cluster, client).node(ID)
    assert client.session is not None and "refuses the token" in client.session.ended_because


async def test_a_client_without_a_session_is_connected_without_a_login(cluster: Cluster) -> None:
    upstreams = upstreams_of(cluster, ClientConnection("peer:1"))
    await upstreams.node(ID)
    assert cluster.brokers[ID].tokens == []
    upstreams.close()


async def test_a_client_that_has_left_opens_no_more_connections(cluster: Cluster) -> None:
    upstreams = upstreams_of(cluster, ClientConnection("peer:1"))
    upstreams.close()
    with pytest.raises(UpstreamLost):
        await upstreams.node(ID)


async def test_a_broker_that_takes_nothing_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_upstreams, "ANSWER_SECONDS", 0.2)

    async def take_nothing(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.Event().wait()

    server = await asyncio.start_server(take_nothing, "127.0.0.1", 0)
    loop, port = asyncio.get_running_loop(), server.sockets[0].getsockname()[1]
    _, upstream = await loop.create_connection(lambda: Upstream(lambda _: None), "127.0.0.1", port)
    async with asyncio.timeout(HANG_GUARD):
        for _ in range(64):
            upstream.send(PRODUCE, 9, None, (bytes(MIB),))
            await taken(upstream)
            if not upstream.is_open:
                break
    assert not upstream.is_open
    server.close()
