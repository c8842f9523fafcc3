"""How clients see the cluster: one node, the proxy, leads all partitions and coordinates all groups.

Several proxies behind one address are the same node. Several nodes with one address would not do: librdkafka takes them
for one node that changes its number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kio.schema.errors import ErrorCode

from smq_broker.kafka.proxy.apis.splitting import replaced
from smq_core.model.addresses import split_address

NODE_ID = 1
BROKER = 4


class ClusterView:
    """``address`` returns the one that clients connect to."""

    def __init__(self, address: Callable[[], str]) -> None:
        self._address = address

    def of_metadata(self, response: Any) -> Any:
        """Of a response to Metadata, or to DescribeCluster."""
        host, port = split_address(self._address())
        first = response.brokers[0]
        own = {"broker_id": NODE_ID} if hasattr(first, "broker_id") else {"node_id": NODE_ID}
        changes = {"brokers": (replaced(first, host=host, port=port, **own),)}
        if hasattr(response, "controller_id"):
            changes["controller_id"] = NODE_ID  # type: ignore[assignment]
        if hasattr(response, "topics"):
            changes["topics"] = tuple(map(_topic, response.topics))
        return replaced(response, **changes)

    def of_partitions(self, response: Any) -> Any:
        """Of a response to DescribeTopicPartitions."""
        return replaced(response, topics=tuple(map(_topic, response.topics)))

    def of_coordinators(self, response: Any) -> Any:
        """Of a response to FindCoordinator."""
        if hasattr(response, "coordinators"):
            return replaced(response, coordinators=tuple(map(self._found, response.coordinators)))
        return self._found(response)

    def _found(self, it: Any) -> Any:
        if it.error_code is not ErrorCode.none:
            return it
        host, port = split_address(self._address())
        return replaced(it, node_id=NODE_ID, host=host, port=port)


def with_broker_name(resources: Any, name: str, new_name: str) -> Any:
    """Resources of a request or of its response, in which the broker of this name has another one."""
    return tuple(
        replaced(it, resource_name=new_name) if it.resource_type == BROKER and it.resource_name == name else it
        for it in resources
    )


def _topic(topic: Any) -> Any:
    return replaced(topic, partitions=tuple(map(_partition, topic.partitions)))


def _partition(it: Any) -> Any:
    """Without a leader it stays so."""
    if it.leader_id < 0:
        return it
    replicas = {"leader_id": NODE_ID, "replica_nodes": (NODE_ID,), "isr_nodes": (NODE_ID,)}
    return replaced(it, **replicas)
