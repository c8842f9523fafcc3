"""Produce and the APIs that look at partitions: each broker gets what is about the partitions that it leads.

Nothing is repeated here. A broker that does not lead a partition says so, and the client repeats its request after it
has looked for the leader, which the proxy does too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from smq_broker.kafka.apis.error_codes import NO_THROTTLE
from smq_broker.kafka.protocol.entities import build_response, encode
from smq_broker.kafka.protocol.messages import PRODUCE, RequestContext, ResponseBody
from smq_broker.kafka.protocol.produce_request import ProduceRequest
from smq_broker.kafka.protocol.upstream_codec import encode_produce_request
from smq_broker.kafka.proxy.apis.splitting import Shape, merge, number_of, replaced, split, stale_partitions, topic_key
from smq_broker.kafka.proxy.apis.waits import wait_seconds
from smq_broker.kafka.proxy.brokers.client_upstreams import ClientUpstreams, answer_of, decoded, taken
from smq_broker.kafka.proxy.brokers.clients import Clients
from smq_broker.kafka.proxy.brokers.upstream import Upstream, UpstreamLost

LIST_OFFSETS, DELETE_RECORDS, OFFSET_FOR_LEADER_EPOCH = 2, 21, 23
NO_ACK = 0
PRODUCED = Shape("responses", "partition_responses")
# What a response has of a partition beside its number and its error.
NOTHING: Mapping[int, Mapping[str, Any]] = MappingProxyType(
    {PRODUCE: {"base_offset": -1, "record_errors": ()}, DELETE_RECORDS: {"low_watermark": -1}}
)


class PartitionApis:
    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    async def forward(self, api_key: int, request: Any, context: RequestContext) -> ResponseBody:
        """ListOffsets, OffsetForLeaderEpoch and DeleteRecords."""
        client = self._clients.of(context.connection)
        parts = await split_by_leader(client, request.topics)
        answers = [
            self._answer(client, node, api_key, replaced(request, topics=tuple(topics)), context)
            for node, topics in parts.items()
        ]
        return merge(await asyncio.gather(*answers), Shape())

    async def _answer(
        self, client: ClientUpstreams, node: int | None, api_key: int, request: Any, context: RequestContext
    ) -> Any:
        version = context.version
        try:
            used, body = await client.request(
                node,
                api_key,
                version,
                context.client_id,
                (encode(request),),
                wait_seconds=wait_seconds(api_key, request),
            )
            response = decoded(body, api_key, version)
        except UpstreamLost as lost:
            self._clients.count_failure(lost)
            forget_all(client, request.topics, node)
            return failed(api_key, version, request.topics, ErrorCode.not_leader_or_follower)
        forget_stale(client, response, Shape(), used)
        return response

    async def produce(self, request: ProduceRequest, context: RequestContext) -> ResponseBody:
        """The requests of a connection are sent on in their order, each to all its brokers, before any is awaited."""
        client, version = self._clients.of(context.connection), context.version
        sent: list[_Sent] = []
        async with context.connection.produce_turn:
            for node, topics in (await split_by_leader(client, request.topics)).items():
                part = request._replace(topics=tuple(topics))
                body = encode_produce_request(part, version)
                try:
                    used, upstream = await client.node(node)
                except UpstreamLost as lost:
                    forget_all(client, topics, node)  # at once: the next request waits for this one
                    sent.append(_Sent(part, node, None, lost))
                    continue
                if request.acks == NO_ACK:
                    upstream.send(PRODUCE, version, context.client_id, body)
                    await taken(upstream)
                    continue
                sent.append(_Sent(part, used, upstream, upstream.request(PRODUCE, version, context.client_id, body)))
        if request.acks == NO_ACK:
            return None
        return merge([await self._produced(client, it, version) for it in sent], PRODUCED)

    async def _produced(self, client: ClientUpstreams, sent: _Sent, version: int) -> Any:
        """Without an answer the client has to repeat the request: its sequences say whether it was done."""
        request = sent.request
        try:
            if sent.upstream is None:
                assert isinstance(sent.answer, UpstreamLost)
                raise sent.answer
            assert isinstance(sent.answer, asyncio.Future)
            body = await answer_of(sent.upstream, sent.answer, wait_seconds(PRODUCE, request))
            response = decoded(body, PRODUCE, version)
        except UpstreamLost as lost:
            self._clients.count_failure(lost)
            forget_all(client, request.topics, sent.node)
            code = ErrorCode.request_timed_out if lost.was_sent else ErrorCode.not_leader_or_follower
            return failed(PRODUCE, version, request.topics, code, PRODUCED)
        forget_stale(client, response, PRODUCED, sent.node)
        return response


class _Sent(NamedTuple):
    request: ProduceRequest
    node: int | None
    upstream: Upstream | None
    answer: asyncio.Future[memoryview] | UpstreamLost


async def split_by_leader(client: ClientUpstreams, topics: Sequence[Any]) -> dict[int | None, list[Any]]:
    """The topics for each broker. What has no known leader goes to a broker that says why."""
    routes = client.routes
    await client.learn_topics(
        key
        for topic in topics
        if any(routes.leader(key := topic_key(topic), number_of(it)) is None for it in topic.partitions)
    )
    return split(topics, routes.leader) or {None: []}


def forget_stale(client: ClientUpstreams, response: Any, shape: Shape, node: int | None) -> None:
    for topic, partition in stale_partitions(response, shape):
        client.routes.forget_leader(topic, partition, node)


def forget_all(client: ClientUpstreams, topics: Sequence[Any], node: int | None) -> None:
    """The broker has not answered: its partitions have another leader soon."""
    for topic in topics:
        for it in topic.partitions:
            client.routes.forget_leader(topic_key(topic), number_of(it), node)


def failed(api_key: int, version: int, topics: Sequence[Any], code: ErrorCode, shape: Shape | None = None) -> Any:
    """A response with the same error for all partitions."""
    shape, nothing = shape or Shape(), NOTHING.get(api_key, {})
    made = []
    for topic in topics:
        key = topic_key(topic)
        named = {"name": key, "topic": key} if isinstance(key, str) else {"topic_id": key}
        partitions = [
            {"error_code": code, "partition_index": number, "partition": number, "index": number, **nothing}
            for number in map(number_of, topic.partitions)
        ]
        made.append(named | {shape.partitions: partitions})
    return build_response(api_key, version, {"throttle_time": NO_THROTTLE, shape.topics: made})
