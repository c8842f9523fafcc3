"""The APIs of a broker for Kafka clients that leads nothing, and knows one topic."""

from __future__ import annotations

import asyncio

from smq_broker.kafka.cluster import KafkaCluster
from smq_broker.kafka.executor import LoopCalls
from smq_broker.kafka.protocol.messages import ApiTable
from smq_broker.kafka.service import api_table
from smq_broker.kafka.topics import KafkaTopics
from smq_broker.segments.registry import SegmentRegistry
from smq_core.errors import UnknownTopic
from smq_core.model.entities import Layout, Phase, Replica, Segment, Topic, TopicSpec
from smq_core.model.keyspace import KeyRange, Partitioner
from smq_storage.object_store.store import Store

UID = "6f1ed002-ab55-4d8c-9c7e-3f0d8b0a5a11"
TOPIC = Topic("default/events", UID, TopicSpec(partitions=1, partitioner=Partitioner.KAFKA))
_SEGMENT = Segment(
    name="events-0-1-0",
    range=KeyRange(0, 1),
    number=0,
    phase=Phase.OPEN,
    replicas=(Replica("b1", "i1", "h:1"),),
    predecessors=(),
    durability=TOPIC.spec.durability,
)
LAYOUT = Layout(topic=TOPIC.name, uid=UID, partitions=1, segments=(_SEGMENT,))


class _Locator:
    def find(self, name: str, *, fresh: bool = False) -> tuple[Topic, Layout]:
        if name != TOPIC.name:
            raise UnknownTopic(f"there is no topic {name}", topic=name)
        return TOPIC, LAYOUT


def apis_of_one_topic(store: Store) -> ApiTable:
    """It coordinates all groups, which are in ``store``."""
    return api_table(
        cluster=KafkaCluster(cluster_id="c", incarnation="i0", address=lambda: "127.0.0.1:9092", listeners=lambda: {}),
        registry=SegmentRegistry("i0", on_drain=lambda: None),
        store=store,
        topics=KafkaTopics(_Locator(), lambda: [TOPIC.name], lambda _: None),  # type: ignore[arg-type]
        calls=LoopCalls(asyncio.new_event_loop()),
        max_batch=1 << 20,
        admin=None,
    )
