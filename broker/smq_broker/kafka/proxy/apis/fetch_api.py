"""Fetch: all brokers wait at the same time, and the first messages end the wait of the others.

The next Fetch of a connection ends the wait of the one before at a broker. So an empty one lets the brokers that have
nothing answer at once, and the response has the watermarks of all partitions. A client gets no fetch session: one of
its connections may end at another proxy than the next one.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from kio.static.primitive import i32Timedelta

from smq_broker.kafka.protocol.entities import build, encode
from smq_broker.kafka.protocol.fetch_response import FetchedPartition, FetchedTopic, FetchResponse
from smq_broker.kafka.protocol.messages import FETCH, Part, ProtocolError, RequestContext
from smq_broker.kafka.protocol.response_writer import UNKNOWN_ID
from smq_broker.kafka.protocol.upstream_codec import decode_fetch_response
from smq_broker.kafka.proxy.apis.partition_apis import forget_all, split_by_leader
from smq_broker.kafka.proxy.apis.splitting import STALE, replaced
from smq_broker.kafka.proxy.apis.waits import wait_seconds
from smq_broker.kafka.proxy.brokers.client_upstreams import ClientUpstreams, answer_of
from smq_broker.kafka.proxy.brokers.clients import Clients
from smq_broker.kafka.proxy.brokers.routes import TopicKey
from smq_broker.kafka.proxy.brokers.upstream import Upstream, UpstreamLost

# Of records in one response, except for a single larger message: the memory that one client takes here.
MAX_RESPONSE_BYTES = 16 * 1024 * 1024
# Epochs of a session that begins, and of none, are not above it.
BEGIN = 0
NO_SESSION = {"session_id": 0, "session_epoch": -1, "forgotten_topics_data": ()}
NO_WAIT = i32Timedelta.parse(timedelta(0))


class ProxiedFetchApi:
    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    async def fetch(self, request: Any, context: RequestContext) -> FetchResponse:
        if getattr(request, "session_epoch", BEGIN) > BEGIN:  # it had one at a broker, or at a former release
            return FetchResponse(topics=(), error_code=ErrorCode.fetch_session_id_not_found.value)
        client = self._clients.of(context.connection)
        parts = await split_by_leader(client, request.topics)
        max_bytes = max(1, min(request.max_bytes, MAX_RESPONSE_BYTES))
        for_each = _without_session(request, max_bytes=max(1, max_bytes // len(parts)))
        fetches = [
            _BrokerFetch(
                clients=self._clients,
                client=client,
                node=node,
                request=replaced(for_each, topics=tuple(topics)),
                context=context,
            )
            for node, topics in parts.items()
        ]
        random.shuffle(fetches)  # what does not fit into the response is another broker's each time
        try:
            await _all_answers(fetches, request.min_bytes)
        finally:
            for it in fetches:
                it.task.cancel()
        answers = [it.task.result() for it in fetches]
        return FetchResponse(
            topics=merged_topics([topic for it in answers for topic in it.topics], max_bytes),
            throttle_ms=max(it.throttle_ms for it in answers),
        )


class _BrokerFetch:
    """What one broker is sent. ``task`` never fails unless it is cancelled."""

    def __init__(
        self, *, clients: Clients, client: ClientUpstreams, node: int | None, request: Any, context: RequestContext
    ) -> None:
        self._clients = clients
        self._client = client
        self._node = node
        self._request = request
        self._context = context
        self._upstream: Upstream | None = None
        self._may_wait = True
        self.task = asyncio.ensure_future(self._run())

    def end_wait(self) -> None:
        """The broker answers with what it has."""
        self._may_wait = False
        if self._upstream is not None and not self.task.done():
            values = {"replica_id": -1, "max_wait": NO_WAIT, "min_bytes": 0, "isolation_level": 0, "topics": ()}
            empty = build(load_request_schema(FETCH, self._context.version), values | NO_SESSION | {"rack_id": ""})
            self._send(self._upstream, empty)

    async def _run(self) -> FetchResponse:
        request, version = self._request, self._context.version
        node = self._node
        try:
            node, self._upstream = await self._client.node(node)
            if not self._may_wait:
                request = replaced(request, max_wait=NO_WAIT)
            answer = self._send(self._upstream, request)
            body = await answer_of(self._upstream, answer, wait_seconds(FETCH, request))
            response = decode_fetch_response(body, version)
        except (UpstreamLost, ProtocolError) as error:
            lost = error if isinstance(error, UpstreamLost) else UpstreamLost(error.message, was_sent=True)
            self._clients.count_failure(lost)
            forget_all(self._client, request.topics, node)
            return _failed(request.topics)
        for topic in response.topics:
            for it in topic.partitions:
                if it.error_code in STALE:
                    self._client.routes.forget_leader(_key(topic), it.partition, node)
        return response

    def _send(self, upstream: Upstream, request: Any) -> asyncio.Future[memoryview]:
        body: Sequence[Part] = (encode(request),)
        return upstream.request(FETCH, self._context.version, self._context.client_id, body)


async def _all_answers(fetches: Sequence[_BrokerFetch], min_bytes: int) -> None:
    """Returns when all brokers have answered. They wait no longer once there is enough, or an error to report."""
    waiting = {it.task for it in fetches}
    while waiting:
        _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if is_enough([it.task.result() for it in fetches if it.task.done()], min_bytes):
            for it in fetches:
                it.end_wait()
            await asyncio.gather(*waiting)
            return


def is_enough(answers: Iterable[FetchResponse], min_bytes: int) -> bool:
    partitions = [it for answer in answers for topic in answer.topics for it in topic.partitions]
    return sum(map(_size, partitions)) >= min_bytes or any(it.error_code for it in partitions)


def merged_topics(topics: Sequence[FetchedTopic], max_bytes: int) -> list[FetchedTopic]:
    """Each topic once. Records that do not fit are left out, so that the client fetches them again, but for the first:
    a client refuses a response that is much longer than it wants.
    """
    found: dict[TopicKey, tuple[FetchedTopic, list[FetchedPartition]]] = {}
    used = 0
    for topic in topics:
        own = found.setdefault(_key(topic), (topic, []))[1]
        for it in topic.partitions:
            size = _size(it)
            if size and used and used + size > max_bytes:
                own.append(replace(it, records=()))
                continue
            used += size
            own.append(it)
    return [topic._replace(partitions=partitions) for topic, partitions in found.values()]


def _without_session(request: Any, *, max_bytes: int) -> Any:
    session = NO_SESSION if hasattr(request, "session_epoch") else {}
    return replaced(request, max_bytes=max_bytes, **session)


def _failed(topics: Iterable[Any]) -> FetchResponse:
    code = ErrorCode.not_leader_or_follower.value
    return FetchResponse(
        topics=[
            FetchedTopic(
                name=getattr(topic, "topic", ""),
                topic_id=getattr(topic, "topic_id", None) or UNKNOWN_ID,
                partitions=[FetchedPartition(partition=it.partition, error_code=code) for it in topic.partitions],
            )
            for topic in topics
        ]
    )


def _key(topic: FetchedTopic) -> TopicKey:
    return topic.name or topic.topic_id


def _size(partition: FetchedPartition) -> int:
    return sum(map(len, partition.records))
