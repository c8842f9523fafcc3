"""The APIs of a broker for Kafka clients that leads nothing, and knows one topic."""

from __future__ import annotations

import asyncio
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader

from smq_broker.kafka.cluster import KafkaCluster
from smq_broker.kafka.executor import LoopCalls
from smq_broker.kafka.protocol.codec import encode_response
from smq_broker.kafka.protocol.entities import build, has_flexible_response_header
from smq_broker.kafka.protocol.messages import ApiTable, ClientConnection, KafkaRequest, RequestContext
from smq_broker.kafka.protocol.sessions import OPEN_ACCESS, RequestAccess
from smq_broker.kafka.service import api_table
from smq_broker.kafka.topics import KafkaTopics
from smq_broker.segments.registry import SegmentRegistry
from smq_core.errors import UnknownTopic
from smq_core.kafka_groups.requests import GroupSettings
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


def apis_of_one_topic(store: Store, group_settings: GroupSettings | None = None) -> ApiTable:
    """It coordinates all groups, which are in ``store``."""
    return api_table(
        cluster=KafkaCluster(cluster_id="c", incarnation="i0", address=lambda: "127.0.0.1:9092", listeners=lambda: {}),
        registry=SegmentRegistry("i0", on_drain=lambda: None),
        store=store,
        topics=KafkaTopics(_Locator(), lambda: [TOPIC.name], lambda _: None),  # type: ignore[arg-type]
        calls=LoopCalls(asyncio.new_event_loop()),
        max_batch=1 << 20,
        group_settings=group_settings or GroupSettings(),
        admin=None,
    )


async def answer_of(
    apis: ApiTable, api_key: int, version: int, access: RequestAccess = OPEN_ACCESS, **values: Any
) -> Any:
    """What a client gets for a request with these values, after it was encoded and decoded."""
    body = build(load_request_schema(api_key, version), values)
    request = KafkaRequest(api_key=api_key, version=version, correlation_id=7, client_id="c", body=body)
    context = RequestContext("c", version, ClientConnection("127.0.0.1:5"), access)
    frame = b"".join(bytes(it) for it in encode_response(request, await apis[api_key].handler(body, context)))
    start = 9 if has_flexible_response_header(api_key, version) else 8
    return entity_reader(load_response_schema(api_key, version))(memoryview(frame), start)[0]
