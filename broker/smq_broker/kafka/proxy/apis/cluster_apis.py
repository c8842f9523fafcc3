"""The APIs that any broker answers: about the cluster, its topics and their configuration."""

from __future__ import annotations

from typing import Any

from smq_broker.kafka.protocol.entities import encode
from smq_broker.kafka.protocol.messages import EncodedBody, ProtocolError, RequestContext, ResponseBody
from smq_broker.kafka.proxy.apis.cluster_view import NODE_ID, ClusterView, with_broker_name
from smq_broker.kafka.proxy.apis.splitting import replaced
from smq_broker.kafka.proxy.apis.waits import wait_seconds
from smq_broker.kafka.proxy.brokers.client_upstreams import METADATA, decoded
from smq_broker.kafka.proxy.brokers.clients import Clients
from smq_broker.kafka.proxy.brokers.upstream import UpstreamLost

DESCRIBE_CONFIGS, DESCRIBE_CLUSTER, DESCRIBE_TOPIC_PARTITIONS = 32, 60, 75


class ClusterApis:
    """Without an answer the connection of the client ends, as if its broker had: then every client repeats."""

    def __init__(self, clients: Clients, view: ClusterView) -> None:
        self._clients = clients
        self._view = view

    async def metadata(self, request: Any, context: RequestContext) -> ResponseBody:
        _, response = await self._look_up(METADATA, request, context)
        self._clients.routes.learn_metadata(response)
        return self._view.of_metadata(response)

    async def describe_cluster(self, request: Any, context: RequestContext) -> ResponseBody:
        _, response = await self._look_up(DESCRIBE_CLUSTER, request, context)
        return self._view.of_metadata(response)

    async def describe_topic_partitions(self, request: Any, context: RequestContext) -> ResponseBody:
        _, response = await self._look_up(DESCRIBE_TOPIC_PARTITIONS, request, context)
        return self._view.of_partitions(response)

    async def describe_configs(self, request: Any, context: RequestContext) -> ResponseBody:
        """The configuration of the proxy as a broker is that of the broker that answers."""
        client, own = self._clients.of(context.connection), str(NODE_ID)
        try:
            node, _ = await client.node(None)
        except UpstreamLost as lost:
            raise self._no_answer(lost) from None
        wanted = replaced(request, resources=with_broker_name(request.resources, own, str(node)))
        _, response = await self._look_up(DESCRIBE_CONFIGS, wanted, context)
        return replaced(response, results=with_broker_name(response.results, str(node), own))

    async def forward(self, api_key: int, request: Any, context: RequestContext) -> ResponseBody:
        """What may change something is sent once."""
        client = self._clients.of(context.connection)
        wait = wait_seconds(api_key, request)
        try:
            _, body = await client.request(
                None, api_key, context.version, context.client_id, (encode(request),), wait_seconds=wait
            )
        except UpstreamLost as lost:
            raise self._no_answer(lost) from None
        return EncodedBody((body,))

    async def _look_up(self, api_key: int, request: Any, context: RequestContext) -> tuple[int, Any]:
        """Which broker has answered, and what. Raises ProtocolError."""
        client = self._clients.of(context.connection)
        try:
            node, body = await client.request_any(api_key, context.version, context.client_id, (encode(request),))
            return node, decoded(body, api_key, context.version)
        except UpstreamLost as lost:
            raise self._no_answer(lost) from None

    def _no_answer(self, lost: UpstreamLost) -> ProtocolError:
        self._clients.count_failure(lost)
        return ProtocolError("no_broker", f"no broker answers: {lost.message}")
