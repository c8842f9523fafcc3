"""The connections to brokers that one connection of a client has: one to each broker that it uses.

So its requests reach a broker in the order in which the client has sent them, and a broker knows whose they are.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kio.index import load_request_schema

from smq_broker.kafka.protocol.entities import build, encode
from smq_broker.kafka.protocol.messages import ClientConnection, Part, ProtocolError
from smq_broker.kafka.protocol.upstream_codec import decode_response
from smq_broker.kafka.proxy.brokers.dialer import Dialer, log_in
from smq_broker.kafka.proxy.brokers.routes import Routes, TopicKey
from smq_broker.kafka.proxy.brokers.upstream import Upstream, UpstreamLost

METADATA = 3
# It has topic ids, and every broker knows it.
METADATA_VERSION = 12
# How much longer than a request says a broker may take. A client waits longer before it gives up.
ANSWER_SECONDS = 10.0


class ClientUpstreams:
    """Belongs to the event loop."""

    def __init__(self, client: ClientConnection, routes: Routes, dialer: Dialer) -> None:
        self.routes = routes
        self._client = client
        self._dialer = dialer
        self._open: dict[int, Upstream] = {}
        self._connecting: dict[int, asyncio.Lock] = {}
        self._home: int | None = None
        """The broker for what any of them answers."""
        self._failed: int | None = None
        """One that has not answered last, and is tried last."""
        self._ended = False

    async def node(self, id_: int | None) -> tuple[int, Upstream]:
        """A connection to the broker; with None to the one that the client uses for what any of them answers.

        Raises UpstreamLost.
        """
        if id_ is None:
            return await self._any()
        return id_, await self._connected(id_)

    async def request(
        self,
        id_: int | None,
        api_key: int,
        version: int,
        client_id: str | None,
        body: Sequence[Part],
        *,
        wait_seconds: float = 0.0,
    ) -> tuple[int, memoryview]:
        """Which broker has answered, and what. ``wait_seconds`` is how long the request lets a broker wait.

        Raises UpstreamLost.
        """
        node, upstream = await self.node(id_)
        return node, await answer_of(upstream, upstream.request(api_key, version, client_id, body), wait_seconds)

    async def request_any(
        self, api_key: int, version: int, client_id: str | None, body: Sequence[Part], *, wait_seconds: float = 0.0
    ) -> tuple[int, memoryview]:
        """As ``request``, of what changes nothing: if the first broker does not answer, another one is used."""
        try:
            return await self.request(None, api_key, version, client_id, body, wait_seconds=wait_seconds)
        except UpstreamLost:
            self._failed, self._home = self._home, None
            return await self.request(None, api_key, version, client_id, body, wait_seconds=wait_seconds)

    async def learn_topics(self, keys: Iterable[TopicKey]) -> None:
        """Finds out who leads the partitions of these topics. What cannot be found out stays unknown."""
        wanted = [
            {"topic_id": None, "name": it} if isinstance(it, str) else {"topic_id": it, "name": None}
            for it in dict.fromkeys(keys)
        ]
        if wanted:
            await self._look_up(wanted)

    async def learn_nodes(self) -> list[int]:
        """The brokers, as one of them says now; as it was known before if none does."""
        await self._look_up(())
        return list(self.routes.nodes)

    async def _look_up(self, topics: Sequence[Mapping[str, Any]]) -> None:
        values = {"topics": topics, "allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
        request = encode(build(load_request_schema(METADATA, METADATA_VERSION), values))
        try:
            _, body = await self.request_any(METADATA, METADATA_VERSION, None, (request,))
            self.routes.learn_metadata(decode_response(body, METADATA, METADATA_VERSION))
        except (UpstreamLost, ProtocolError):
            return

    def close(self) -> None:
        self._ended = True
        for upstream in list(self._open.values()):
            upstream.end("the client has left")

    async def _any(self) -> tuple[int, Upstream]:
        """The last one that has worked, or the next one that does."""
        nodes = list(self.routes.nodes)
        random.shuffle(nodes)
        nodes.sort(key=lambda it: (it != self._home, it == self._failed))
        problem = "no broker with a listener for Kafka clients is known"
        for id_ in nodes:
            try:
                upstream = await self._connected(id_)
            except UpstreamLost as error:
                problem = error.message
                continue
            self._home = id_
            return id_, upstream
        raise UpstreamLost(problem, was_sent=False)

    async def _connected(self, id_: int) -> Upstream:
        async with self._connecting.setdefault(id_, asyncio.Lock()):
            upstream, session = self._open.get(id_), self._client.session
            if upstream is not None and upstream.is_open:
                if session is not None and session.token != upstream.token:
                    await self._log_in_again(upstream)
                return upstream
            node = self.routes.nodes.get(id_)
            if node is None or self._ended:
                raise UpstreamLost("the broker is gone", was_sent=False)
            upstream = await self._dialer.connect(node, session)
            self._forget_gone()
            self._open[id_] = upstream
            if self._ended:  # the client has left meanwhile
                upstream.end("the client has left")
            return upstream

    def _forget_gone(self) -> None:
        self._open = {id_: it for id_, it in self._open.items() if it.is_open}
        for id_ in [it for it in self._connecting if it not in self.routes.nodes]:
            if not self._connecting[id_].locked():
                del self._connecting[id_]

    async def _log_in_again(self, upstream: Upstream) -> None:
        session = self._client.session
        assert session is not None
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await log_in(upstream, session)
        except (UpstreamLost, TimeoutError) as error:
            upstream.end("a login failed")
            raise UpstreamLost(f"a broker refuses another login: {error}", was_sent=False) from None


async def answer_of(upstream: Upstream, answer: asyncio.Future[memoryview], wait_seconds: float) -> memoryview:
    """Raises UpstreamLost, also if the broker takes too long: then nobody waits for it any more."""
    try:
        async with asyncio.timeout(wait_seconds + ANSWER_SECONDS):
            return await answer
    except TimeoutError:
        upstream.end("the broker does not answer")
        raise UpstreamLost("the broker does not answer", was_sent=True) from None


async def taken(upstream: Upstream) -> None:
    """Returns when the broker has taken what was sent, or is left because it does not."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            await upstream.drained()
    except TimeoutError:
        upstream.end("the broker takes nothing")


def decoded(body: memoryview, api_key: int, version: int) -> Any:
    """Raises UpstreamLost if a broker has answered with what nobody understands."""
    try:
        return decode_response(body, api_key, version)
    except ProtocolError as error:
        raise UpstreamLost(error.message, was_sent=True) from None
