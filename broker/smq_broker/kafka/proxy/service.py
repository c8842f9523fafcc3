"""Constructs what serves the proxy's clients."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry

from smq_broker.kafka.cluster import KafkaNode
from smq_broker.kafka.executor import LoopCalls
from smq_broker.kafka.protocol.messages import FETCH, PRODUCE, Api, ApiTable, RequestContext, ResponseBody
from smq_broker.kafka.protocol.sessions import OpenAccess
from smq_broker.kafka.proxy.apis.cluster_apis import (
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    DESCRIBE_TOPIC_PARTITIONS,
    ClusterApis,
)
from smq_broker.kafka.proxy.apis.cluster_view import ClusterView
from smq_broker.kafka.proxy.apis.fetch_api import ProxiedFetchApi
from smq_broker.kafka.proxy.apis.group_answers import FIND_COORDINATOR, LIST_GROUPS
from smq_broker.kafka.proxy.apis.group_apis import ProxiedGroupApis
from smq_broker.kafka.proxy.apis.partition_apis import PartitionApis
from smq_broker.kafka.proxy.brokers.client_upstreams import METADATA
from smq_broker.kafka.proxy.brokers.clients import Clients, ProxiedConnections
from smq_broker.kafka.proxy.brokers.dialer import ClientTls, Dialer
from smq_broker.kafka.proxy.brokers.routes import Routes
from smq_broker.kafka.proxy.proxy_metrics import ProxyMetrics
from smq_broker.kafka.security.connection_access import LoginRequired
from smq_broker.kafka.security.listener_security import ListenerSecurity
from smq_broker.kafka.transport.limits import KafkaLimits
from smq_broker.kafka.transport.listener import KafkaListener
from smq_broker.kafka.transport.tls import ServerTls
from smq_broker.runtime.threads import ThreadSupervisor
from smq_core.access.certificates import Certificate

# The versions of brokers, by what decides where a request goes. A test compares them with those of the brokers.
BY_LEADER = {2: (1, 10), 21: (0, 2), 23: (2, 4)}
BY_COORDINATOR = {
    **{8: (2, 9), 9: (1, 9), 11: (0, 9), 12: (0, 4), 13: (0, 5), 14: (0, 5)},
    **{15: (0, 6), 42: (0, 2), 47: (0, 0), 68: (0, 1), 69: (0, 1)},
}
BY_ANY = {
    **{19: (2, 7), 20: (1, 6), 22: (0, 5), 29: (1, 3), 30: (1, 3), 31: (1, 3)},
    **{33: (0, 2), 37: (0, 3), 44: (0, 1)},
}
_Forward = Callable[[int, Any, RequestContext], Awaitable[ResponseBody | None]]


class KafkaProxyService:
    """Listens from its construction on, and answers after ``start``. Raises OSError if the port cannot be bound.

    ``advertised`` returns the address for clients, given that of the listener. With ``security`` clients log in, and
    connections to brokers are encrypted, too: then ``roots`` verify them.
    """

    def __init__(
        self,
        listen: str,
        *,
        advertised: Callable[[str], str],
        request_memory: int,
        collectors: CollectorRegistry,
        threads: ThreadSupervisor,
        security: ListenerSecurity | None = None,
        roots: ClientTls | None = None,
    ) -> None:
        loop = asyncio.new_event_loop()
        self._calls = LoopCalls(loop)
        self._tls = ServerTls(security.certificate) if security is not None else None
        self._routes = Routes()
        metrics = ProxyMetrics(collectors)
        clients = Clients(self._routes, Dialer(roots, metrics), metrics)
        apis = api_table(clients, ClusterView(lambda: self.address))
        clear = security.clear_access if security is not None else None
        self._listener = KafkaListener(
            listen,
            apis={**apis, **security.apis} if security is not None else apis,
            registry=collectors,
            threads=threads,
            limits=KafkaLimits(request_memory_bytes=request_memory),
            access=ProxiedConnections(LoginRequired() if security is not None else OpenAccess(), clients),
            tls=self._tls,
            clear_access=ProxiedConnections(clear, clients) if clear is not None else None,
            loop=loop,
        )
        self.address = advertised(self._listener.address)

    def start(self) -> None:
        """Raises Unavailable if the system starts no more threads."""
        self._listener.start()

    def show_brokers(self, nodes: Iterable[KafkaNode]) -> None:
        """These brokers serve Kafka clients now. Safe from all threads."""
        found = list(nodes)
        self._calls.post(lambda: self._routes.learn_nodes(found))

    def renew(self, certificate: Certificate | None) -> None:
        """There is another certificate. New connections see it. Safe from all threads."""
        tls = self._tls
        if tls is not None and certificate is not None:
            self._calls.post(lambda: tls.show(certificate))

    def stop(self) -> None:
        self._listener.stop()


def api_table(clients: Clients, view: ClusterView) -> ApiTable:
    partitions, groups, cluster = PartitionApis(clients), ProxiedGroupApis(clients, view), ClusterApis(clients, view)
    return {
        PRODUCE: Api(3, 13, partitions.produce),
        FETCH: Api(4, 17, ProxiedFetchApi(clients).fetch),
        METADATA: Api(0, 13, cluster.metadata),
        DESCRIBE_CLUSTER: Api(0, 2, cluster.describe_cluster),
        DESCRIBE_TOPIC_PARTITIONS: Api(0, 0, cluster.describe_topic_partitions),
        DESCRIBE_CONFIGS: Api(1, 4, cluster.describe_configs),
        FIND_COORDINATOR: Api(0, 6, groups.find),
        LIST_GROUPS: Api(0, 5, groups.list_groups),
        **_forwarded(BY_LEADER, partitions.forward),
        **_forwarded(BY_COORDINATOR, groups.forward),
        **_forwarded(BY_ANY, cluster.forward),
    }


def _forwarded(versions: dict[int, tuple[int, int]], forward: _Forward) -> ApiTable:
    return {key: Api(low, high, partial(forward, key)) for key, (low, high) in versions.items()}
