"""A proxy for Kafka clients, and brokers that answer what a test says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.static.primitive import i32Timedelta
from prometheus_client import CollectorRegistry

from smq_broker.kafka.cluster import KafkaNode
from smq_broker.kafka.protocol.fetch_response import FetchedPartition, FetchedTopic, FetchResponse
from smq_broker.kafka.protocol.messages import FETCH, PRODUCE, Api, RequestContext
from smq_broker.kafka.protocol.produce_request import ProduceRequest
from smq_broker.kafka.proxy.service import KafkaProxyService
from smq_broker.kafka.security.login import SASL_AUTHENTICATE, SASL_HANDSHAKE
from smq_broker.kafka.security.mechanisms import MECHANISMS
from smq_broker.kafka.transport.listener import KafkaListener
from smq_broker.runtime.broker_metrics import BrokerMetrics
from smq_broker.runtime.threads import ThreadSupervisor
from smq_core.model.addresses import split_address

METADATA, FIND_COORDINATOR, HEARTBEAT, LIST_GROUPS, CREATE_TOPICS, DESCRIBE_CONFIGS = 3, 10, 12, 16, 19, 32
TOPIC = "t"
NO_TIME = i32Timedelta.parse(timedelta())
NO_LIFETIME = timedelta()


class Cluster:
    """``leaders`` and ``coordinators`` may be changed. Other brokers refuse partitions and groups."""

    def __init__(self, leaders: dict[int, int], coordinators: dict[str, int] | None = None) -> None:
        self.leaders = leaders
        self.coordinators = coordinators or {}
        self.brokers: dict[int, Broker] = {}

    def start(self, ids: Iterable[int]) -> None:
        for id_ in ids:
            self.brokers[id_] = Broker(id_, self)

    def nodes(self) -> list[KafkaNode]:
        return [KafkaNode(it.id, *split_address(it.listener.address)) for it in self.brokers.values()]

    def stop(self) -> None:
        for it in self.brokers.values():
            it.stop()


class Broker:
    """``seen`` has the API of each request. ``records`` are those that a Fetch finds, by partition.

    ``hangs``: it answers no more. ``tokens`` are those of logins, and it refuses ``bad_token``.
    """

    bad_token = "bad"

    def __init__(self, id_: int, cluster: Cluster) -> None:
        self.id = id_
        self.seen: list[int] = []
        self.produced: list[tuple[int, bytes]] = []
        self.records: dict[int, bytes] = {}
        self.hangs = False
        self.tokens: list[str] = []
        self._cluster = cluster
        apis = {
            PRODUCE: (3, 13, self.produce),
            FETCH: (4, 17, self.fetch),
            METADATA: (0, 13, self.metadata),
            FIND_COORDINATOR: (0, 6, self.find),
            HEARTBEAT: (0, 4, self.heartbeat),
            LIST_GROUPS: (0, 4, self.list_groups),
            CREATE_TOPICS: (2, 7, self.create),
            DESCRIBE_CONFIGS: (1, 4, self.describe_configs),
            SASL_HANDSHAKE: (1, 1, self.handshake),
            SASL_AUTHENTICATE: (0, 2, self.authenticate),
        }
        self.listener = KafkaListener(
            "127.0.0.1:0",
            apis={key: Api(low, high, self._noted(key, handler)) for key, (low, high, handler) in apis.items()},
            registry=CollectorRegistry(),
            threads=ThreadSupervisor(BrokerMetrics(CollectorRegistry())),
        )
        self.listener.start()

    def stop(self) -> None:
        self.listener.stop(0.1)

    def _noted(self, key: int, handler: Callable[..., Any]) -> Any:
        async def handle(body: Any, context: RequestContext) -> Any:
            self.seen.append(key)
            if self.hangs:
                await asyncio.Event().wait()
            return await handler(body, context)

        return handle

    def _code(self, partition: int) -> ErrorCode:
        leads = self._cluster.leaders.get(partition) == self.id
        return ErrorCode.none if leads else ErrorCode.not_leader_or_follower

    async def produce(self, body: ProduceRequest, context: RequestContext) -> Any:
        answers = []
        for partition, records in body.topics[0].partitions:
            code = self._code(partition)
            if code is ErrorCode.none:
                self.produced.append((partition, bytes(records or b"")))
            answers.append({"index": partition, "error_code": code, "base_offset": 5, "record_errors": ()})
        topic = {"name": TOPIC, "topic_id": body.topics[0].topic_id, "partition_responses": answers}
        return None if body.acks == 0 else {"throttle_time": NO_TIME, "responses": [topic]}

    async def fetch(self, body: Any, context: RequestContext) -> FetchResponse:
        """Waits as a broker does: until there is something, the time is over, or the next Fetch comes."""
        wait = context.connection.begin_fetch()
        wanted = [it.partition for topic in body.topics for it in topic.partitions]
        if not any(self.records.get(it) or self._code(it) for it in wanted):
            try:
                async with asyncio.timeout(body.max_wait.total_seconds()):
                    await wait.changed.wait()
            except TimeoutError:
                pass
        found = [
            FetchedPartition(
                partition=it,
                error_code=self._code(it),
                high_watermark=100 + it,
                records=(self.records[it],) if it in self.records else (),
            )
            for it in wanted
        ]
        return FetchResponse(topics=[FetchedTopic(TOPIC, UUID(int=0), found)] if found else ())

    async def metadata(self, body: Any, _: RequestContext) -> Any:
        partitions = [
            {
                "partition_index": number,
                "leader_id": leader,
                "leader_epoch": 1,
                "error_code": ErrorCode.none,
                "replica_nodes": (leader,),
                "isr_nodes": (leader,),
                "offline_replicas": (),
            }
            for number, leader in self._cluster.leaders.items()
        ]
        topic = {"error_code": ErrorCode.none, "name": TOPIC, "topic_id": None, "is_internal": False}
        return {
            "throttle_time": NO_TIME,
            "brokers": [
                {"node_id": it.id, "host": it.host, "port": it.port, "rack": None} for it in self._cluster.nodes()
            ],
            "cluster_id": "c",
            "controller_id": self.id,
            "topics": [topic | {"partitions": partitions}] if body.topics else (),
        }

    async def find(self, body: Any, context: RequestContext) -> Any:
        nodes = {it.id: it for it in self._cluster.nodes()}

        def found(group: str) -> dict[str, Any]:
            node = nodes.get(self._cluster.coordinators.get(group, -1))
            if node is None:
                code = ErrorCode.coordinator_not_available
                return {"key": group, "error_code": code, "error_message": None, "node_id": -1, "host": "", "port": -1}
            none = {"error_code": ErrorCode.none, "error_message": None}
            return {"key": group, "node_id": node.id, "host": node.host, "port": node.port} | none

        if context.version < 4:
            return {"throttle_time": NO_TIME} | found(body.key)
        return {"throttle_time": NO_TIME, "coordinators": [found(it) for it in body.coordinator_keys]}

    async def heartbeat(self, body: Any, _: RequestContext) -> Any:
        is_here = self._cluster.coordinators.get(body.group_id) == self.id
        code = ErrorCode.none if is_here else ErrorCode.not_coordinator
        return {"throttle_time": NO_TIME, "error_code": code}

    async def list_groups(self, _: Any, __: RequestContext) -> Any:
        own = [name for name, node in self._cluster.coordinators.items() if node == self.id]
        groups = [{"group_id": it, "protocol_type": "consumer", "group_state": "Empty"} for it in own]
        return {"throttle_time": NO_TIME, "error_code": ErrorCode.none, "groups": groups}

    async def create(self, body: Any, _: RequestContext) -> Any:
        return {
            "throttle_time": NO_TIME,
            "topics": [{"name": it.name, "error_code": ErrorCode.none} for it in body.topics],
        }

    async def handshake(self, _: Any, __: RequestContext) -> Any:
        return {"error_code": ErrorCode.none, "mechanisms": tuple(MECHANISMS)}

    async def authenticate(self, body: Any, _: RequestContext) -> Any:
        self.tokens.append(token := MECHANISMS["OAUTHBEARER"](body.auth_bytes).token)
        code = ErrorCode.none if token != self.bad_token else ErrorCode.sasl_authentication_failed
        return {"error_code": code, "error_message": None, "auth_bytes": b"", "session_lifetime": NO_LIFETIME}

    async def describe_configs(self, body: Any, _: RequestContext) -> Any:
        results = [
            {"resource_type": it.resource_type, "resource_name": it.resource_name, "configs": ()}
            | {"error_code": ErrorCode.none, "error_message": None}
            for it in body.resources
        ]
        return {"throttle_time": NO_TIME, "results": results}


def start_proxy(nodes: Iterable[KafkaNode], collectors: CollectorRegistry | None = None) -> KafkaProxyService:
    """``address`` is where it listens."""
    service = KafkaProxyService(
        "127.0.0.1:0",
        advertised=lambda bound: bound,
        request_memory=1 << 24,
        collectors=collectors or CollectorRegistry(),
        threads=ThreadSupervisor(BrokerMetrics(CollectorRegistry())),
    )
    service.show_brokers(nodes)
    service.start()
    return service
