"""The brokers as Kafka's clients see them: nodes with numbers and addresses.

A node is one incarnation of a broker, because a client that was connected to a former one has to connect again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from zlib import crc32

from smq_core.model.addresses import split_address


@dataclass(frozen=True, slots=True)
class KafkaNode:
    id: int
    host: str
    port: int


class KafkaCluster:
    """``address`` returns that of this broker's listener, ``listeners`` those of all living brokers, by incarnation,
    as the leader knows them.
    """

    def __init__(
        self,
        *,
        cluster_id: str,
        incarnation: str,
        address: Callable[[], str],
        listeners: Callable[[], Mapping[str, str]],
    ) -> None:
        self.id = cluster_id
        self.incarnation = incarnation
        self.own_id = node_id(incarnation)
        self._own_address = address
        self._listeners = listeners

    def nodes(self) -> list[KafkaNode]:
        """All of them; this one is always among them."""
        addresses = {**self._listeners(), self.incarnation: self._own_address()}
        return [_node(incarnation, address) for incarnation, address in sorted(addresses.items())]

    def node(self, incarnation: str) -> KafkaNode | None:
        """The node of this incarnation, or None if it is not known or serves no Kafka clients."""
        address = self._own_address() if incarnation == self.incarnation else self._listeners().get(incarnation)
        return _node(incarnation, address) if address is not None else None


def node_id(incarnation: str) -> int:
    """A number from 0 to 2^31 - 1, which every broker computes alike."""
    return crc32(incarnation.encode()) & 0x7FFFFFFF


def _node(incarnation: str, address: str) -> KafkaNode:
    host, port = split_address(address)
    return KafkaNode(node_id(incarnation), host, port)
