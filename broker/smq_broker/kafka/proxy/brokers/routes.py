"""Where requests go: the brokers, who leads a partition, and who coordinates a group, as brokers have said last.

A route that a broker refuses is forgotten. What is not known is found out before the next request.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias, TypeVar
from uuid import UUID

from smq_broker.kafka.cluster import KafkaNode

# A topic by its id, or by its name in versions without ids.
TopicKey: TypeAlias = UUID | str

MAX_TOPICS = 20_000
MAX_GROUPS = 100_000

K = TypeVar("K")
V = TypeVar("V")


class Routes:
    """Of all clients: a route is no secret, and each broker checks what a client may do."""

    def __init__(self) -> None:
        self.nodes: dict[int, KafkaNode] = {}
        self._leaders: dict[TopicKey, dict[int, int]] = {}
        self._coordinators: dict[str, int] = {}

    def learn_nodes(self, nodes: Iterable[KafkaNode]) -> None:
        """These are all. An empty list says nothing."""
        found = {it.id: it for it in nodes}
        if found:
            self.nodes = found

    def learn_metadata(self, response: Any) -> None:
        """From a response to Metadata, of any version."""
        self.learn_nodes(KafkaNode(it.node_id, it.host, it.port) for it in response.brokers)
        for topic in response.topics:
            leaders = {it.partition_index: it.leader_id for it in topic.partitions if it.leader_id >= 0}
            keys = (topic.name, getattr(topic, "topic_id", None))
            for key in keys:
                if key is not None:
                    _put(self._leaders, key, leaders, MAX_TOPICS)

    def leader(self, topic: TopicKey, partition: int) -> int | None:
        """The node that leads the partition; None if that is not known."""
        return self._known(self._leaders.get(topic, {}).get(partition))

    def forget_leader(self, topic: TopicKey, partition: int, node: int | None) -> None:
        """This node does not lead the partition. What was learned since the request was sent stays."""
        leaders = self._leaders.get(topic, {})
        if node is not None and leaders.get(partition) == node:
            del leaders[partition]

    def learn_coordinator(self, group: str, node: KafkaNode) -> None:
        self.nodes.setdefault(node.id, node)
        _put(self._coordinators, group, node.id, MAX_GROUPS)

    def coordinator(self, group: str) -> int | None:
        """The node that coordinates the group; None if that is not known."""
        return self._known(self._coordinators.get(group))

    def forget_coordinator(self, group: str, node: int) -> None:
        if self._coordinators.get(group) == node:
            del self._coordinators[group]

    def _known(self, node: int | None) -> int | None:
        return node if node in self.nodes else None


def _put(routes: dict[K, V], key: K, value: V, limit: int) -> None:
    routes.pop(key, None)
    while len(routes) >= limit:
        del routes[next(iter(routes))]
    routes[key] = value
