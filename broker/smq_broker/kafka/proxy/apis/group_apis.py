"""The APIs of groups: the coordinator of a group gets what is about it. Clients see the proxy as the coordinator."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from kio.index import load_request_schema
from kio.schema.errors import ErrorCode

from smq_broker.kafka.cluster import KafkaNode
from smq_broker.kafka.protocol.entities import build, encode
from smq_broker.kafka.protocol.messages import EncodedBody, RequestContext, ResponseBody
from smq_broker.kafka.proxy.apis.cluster_view import ClusterView
from smq_broker.kafka.proxy.apis.group_answers import (
    CONSUMER_GROUP_DESCRIBE,
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    LIST_GROUPS,
    OFFSET_FETCH,
    unavailable,
)
from smq_broker.kafka.proxy.apis.splitting import replaced
from smq_broker.kafka.proxy.apis.waits import wait_seconds
from smq_broker.kafka.proxy.brokers.client_upstreams import ClientUpstreams, decoded
from smq_broker.kafka.proxy.brokers.clients import Clients
from smq_broker.kafka.proxy.brokers.upstream import UpstreamLost

GROUP = 0
BATCHED_FROM = FIND_VERSION = 4
# A broker answers so if it does not coordinate the group.
ELSEWHERE = frozenset({ErrorCode.coordinator_not_available, ErrorCode.not_coordinator})


class _Lists(NamedTuple):
    """The fields with the groups: of a request, and of its response."""

    requested: str
    answered: str


LISTS: Mapping[int, _Lists] = MappingProxyType(
    {
        OFFSET_FETCH: _Lists("groups", "groups"),
        DESCRIBE_GROUPS: _Lists("groups", "groups"),
        CONSUMER_GROUP_DESCRIBE: _Lists("group_ids", "groups"),
        DELETE_GROUPS: _Lists("groups_names", "results"),
    }
)


class ProxiedGroupApis:
    def __init__(self, clients: Clients, view: ClusterView) -> None:
        self._clients = clients
        self._view = view

    async def find(self, request: Any, context: RequestContext) -> ResponseBody:
        """FindCoordinator: whoever coordinates the group, its client finds the proxy."""
        client = self._clients.of(context.connection)
        try:
            _, body = await client.request_any(FIND_COORDINATOR, context.version, context.client_id, (encode(request),))
            response = decoded(body, FIND_COORDINATOR, context.version)
        except UpstreamLost as lost:
            self._clients.count_failure(lost)
            return unavailable(FIND_COORDINATOR, request, context.version)
        if getattr(request, "key_type", GROUP) == GROUP:
            _learn(client, request, response)
        return self._view.of_coordinators(response)

    async def forward(self, api_key: int, request: Any, context: RequestContext) -> ResponseBody:
        """What is about one group, or several."""
        lists = LISTS.get(api_key)
        if lists is None or not hasattr(request, lists.requested):
            return await self._of_group(api_key, request, context)
        return await self._of_groups(api_key, request, context, lists)

    async def list_groups(self, request: Any, context: RequestContext) -> ResponseBody:
        """Each broker lists the groups that it coordinates."""
        client = self._clients.of(context.connection)
        nodes: Sequence[int | None] = await client.learn_nodes() or [None]
        found = [self._answer(client, it, LIST_GROUPS, request, context) for it in nodes]
        answers = [response for response, _ in await asyncio.gather(*found)]
        error = next((it.error_code for it in answers if it.error_code is not ErrorCode.none), ErrorCode.none)
        groups = {it.group_id: it for response in answers for it in response.groups}
        return replaced(answers[0], error_code=error, groups=tuple(groups.values()))

    async def _of_group(self, api_key: int, request: Any, context: RequestContext) -> ResponseBody:
        client, group = self._clients.of(context.connection), request.group_id
        await self._learn(client, [group])
        node = client.routes.coordinator(group)
        response, body = await self._answer(client, node, api_key, request, context)
        if ELSEWHERE.intersection(error_codes(response)) and node is not None:
            client.routes.forget_coordinator(group, node)
        return EncodedBody((body,)) if body is not None else response

    async def _of_groups(self, api_key: int, request: Any, context: RequestContext, lists: _Lists) -> ResponseBody:
        client = self._clients.of(context.connection)
        wanted: Sequence[Any] = getattr(request, lists.requested)
        await self._learn(client, map(_name, wanted))
        by_node: dict[int | None, list[Any]] = {}
        for it in wanted:
            by_node.setdefault(client.routes.coordinator(_name(it)), []).append(it)
        parts = {node: replaced(request, **{lists.requested: tuple(own)}) for node, own in by_node.items()}
        parts = parts or {None: request}
        found = [self._answer(client, node, api_key, part, context) for node, part in parts.items()]
        answers = [response for response, _ in await asyncio.gather(*found)]
        for node, response in zip(parts, answers, strict=True):
            for it in getattr(response, lists.answered):
                if node is not None and ELSEWHERE.intersection(error_codes(it)):
                    client.routes.forget_coordinator(it.group_id, node)
        groups = tuple(it for response in answers for it in getattr(response, lists.answered))
        return replaced(answers[0], **{lists.answered: groups})

    async def _answer(
        self, client: ClientUpstreams, node: int | None, api_key: int, request: Any, context: RequestContext
    ) -> tuple[Any, memoryview | None]:
        """The response, and as it was sent if a broker has sent it."""
        version, wait = context.version, wait_seconds(api_key, request)
        try:
            _, body = await client.request(
                node, api_key, version, context.client_id, (encode(request),), wait_seconds=wait
            )
            return decoded(body, api_key, version), body
        except UpstreamLost as lost:
            self._clients.count_failure(lost)
            return unavailable(api_key, request, version), None

    async def _learn(self, client: ClientUpstreams, groups: Iterable[str]) -> None:
        """Finds out who coordinates these groups. What cannot be found out stays unknown."""
        unknown = [it for it in dict.fromkeys(groups) if client.routes.coordinator(it) is None]
        if not unknown:
            return
        values = {"key_type": GROUP, "coordinator_keys": unknown}
        request = build(load_request_schema(FIND_COORDINATOR, FIND_VERSION), values)
        try:
            _, body = await client.request_any(FIND_COORDINATOR, FIND_VERSION, None, (encode(request),))
            _learn(client, request, decoded(body, FIND_COORDINATOR, FIND_VERSION))
        except UpstreamLost as lost:
            self._clients.count_failure(lost)


def error_codes(entity: Any) -> Iterator[ErrorCode]:
    """All that a response has, at whatever depth."""
    if isinstance(entity, tuple):
        for it in entity:
            yield from error_codes(it)
    elif dataclasses.is_dataclass(entity):
        for field in dataclasses.fields(entity):
            value = getattr(entity, field.name)
            if field.name == "error_code":
                yield value
            else:
                yield from error_codes(value)


def _learn(client: ClientUpstreams, request: Any, response: Any) -> None:
    if hasattr(response, "coordinators"):
        found = {it.key: it for it in response.coordinators}
    else:
        found = {request.key: response}
    for group, it in found.items():
        if it.error_code is ErrorCode.none:
            client.routes.learn_coordinator(group, KafkaNode(it.node_id, it.host, it.port))


def _name(group: Any) -> str:
    return group if isinstance(group, str) else group.group_id  # type: ignore[no-any-return]
