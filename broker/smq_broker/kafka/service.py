"""Constructs what serves Kafka clients, from the parts of the broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry

from smq_broker.kafka.admin.administration import admin_apis
from smq_broker.kafka.admin.create_topics import CreateTopicsApi
from smq_broker.kafka.admin.topic_changes import TopicChanges
from smq_broker.kafka.apis.fetch import FetchApi
from smq_broker.kafka.apis.leaders import Leaders
from smq_broker.kafka.apis.metadata import MetadataApi
from smq_broker.kafka.apis.offsets import OffsetsApi
from smq_broker.kafka.apis.produce import ProduceApi
from smq_broker.kafka.apis.producer_ids import init_producer_id
from smq_broker.kafka.cluster import KafkaCluster
from smq_broker.kafka.executor import Blocking, LoopCalls
from smq_broker.kafka.groups.service import group_apis
from smq_broker.kafka.partitions.histories import Histories
from smq_broker.kafka.partitions.tail_reader import TailReader
from smq_broker.kafka.protocol.messages import FETCH, PRODUCE, Api, ApiTable
from smq_broker.kafka.security.listener_security import ListenerSecurity
from smq_broker.kafka.topics import KafkaTopics
from smq_broker.kafka.transport.listener import KafkaListener
from smq_broker.kafka.transport.tls import ServerTls
from smq_broker.leader_client.locator import Locator
from smq_broker.leader_client.topic_admin import TopicAdmin
from smq_broker.runtime.threads import ThreadSupervisor
from smq_broker.segments.registry import SegmentRegistry
from smq_core.access.certificates import Certificate
from smq_core.kafka_groups.requests import GroupSettings
from smq_storage.catalog.kafka_names import topic_of_kafka_name
from smq_storage.catalog.topics import topics_with_folders
from smq_storage.object_store.store import Store

LIST_OFFSETS, METADATA, INIT_PRODUCER_ID, OFFSET_FOR_LEADER_EPOCH, DESCRIBE_CLUSTER = 2, 3, 22, 23, 60


class KafkaService:
    """Listens from its construction on, and answers after ``start``. Raises OSError if the port cannot be bound.

    ``advertised`` returns the address for clients, given that of the listener. Without ``security`` it speaks clear
    text, and everybody may do everything. ``admin`` is None if clients may change no topics; with
    ``auto_create_topics`` they get one that they ask for and that is not there.
    """

    def __init__(
        self,
        listen: str,
        *,
        advertised: Callable[[str], str],
        cluster_id: str,
        registry: SegmentRegistry,
        store: Store,
        locator: Locator,
        listeners: Callable[[], Mapping[str, str]],
        max_batch: int,
        group_settings: GroupSettings,
        admin: TopicAdmin | None,
        auto_create_topics: bool,
        collectors: CollectorRegistry,
        threads: ThreadSupervisor,
        security: ListenerSecurity | None = None,
    ) -> None:
        loop = asyncio.new_event_loop()
        self._calls = LoopCalls(loop)
        self._tls = ServerTls(security.certificate) if security is not None else None
        cluster = KafkaCluster(
            cluster_id=cluster_id,
            incarnation=registry.incarnation,
            address=lambda: self.address,
            listeners=listeners,
        )
        topics = KafkaTopics(locator, lambda: topics_with_folders(store), lambda name: topic_of_kafka_name(store, name))
        apis = api_table(
            cluster=cluster,
            registry=registry,
            store=store,
            topics=topics,
            calls=self._calls,
            max_batch=max_batch,
            group_settings=group_settings,
            admin=admin,
            auto_create_topics=auto_create_topics,
        )
        self._listener = KafkaListener(
            listen,
            apis={**apis, **security.apis} if security is not None else apis,
            registry=collectors,
            threads=threads,
            access=security.access(topics) if security is not None else None,
            tls=self._tls,
            clear_access=security.clear_access if security is not None else None,
            loop=loop,
        )
        self.address = advertised(self._listener.address)

    def start(self) -> None:
        """Raises Unavailable if the system starts no more threads."""
        self._listener.start()

    def renew(self, certificate: Certificate | None) -> None:
        """There is another certificate. New connections see it. Safe from all threads."""
        tls = self._tls
        if tls is not None and certificate is not None:
            self._calls.post(lambda: tls.show(certificate))

    def stop(self) -> None:
        self._listener.stop()


def api_table(
    *,
    cluster: KafkaCluster,
    registry: SegmentRegistry,
    store: Store,
    topics: KafkaTopics,
    calls: LoopCalls,
    max_batch: int,
    group_settings: GroupSettings,
    admin: TopicAdmin | None,
    auto_create_topics: bool = False,
) -> ApiTable:
    blocking, tails, histories = Blocking(), TailReader(), Histories(store)
    leaders = Leaders(registry, topics, blocking)
    changes = TopicChanges(admin)
    create = CreateTopicsApi(topics=topics, changes=changes, cluster=cluster, max_message_bytes=max_batch)
    metadata = MetadataApi(cluster, topics, blocking, create.create_default if auto_create_topics else None)
    offsets = OffsetsApi(leaders=leaders, tails=tails, histories=histories, blocking=blocking)
    produce = ProduceApi(leaders=leaders, blocking=blocking, calls=calls, max_batch=max_batch)
    fetch = FetchApi(
        leaders=leaders,
        tails=tails,
        histories=histories,
        blocking=blocking,
        calls=calls,
    )
    return {
        PRODUCE: Api(3, 13, produce.produce),
        FETCH: Api(4, 17, fetch.fetch),
        LIST_OFFSETS: Api(1, 10, offsets.list_offsets),
        METADATA: Api(0, 13, metadata.metadata),
        INIT_PRODUCER_ID: Api(0, 5, init_producer_id),
        OFFSET_FOR_LEADER_EPOCH: Api(2, 4, offsets.offset_for_leader_epoch),
        DESCRIBE_CLUSTER: Api(0, 2, metadata.describe_cluster),
        **admin_apis(
            cluster=cluster,
            topics=topics,
            leaders=leaders,
            histories=histories,
            blocking=blocking,
            changes=changes,
            create=create,
            max_batch=max_batch,
        ),
        **group_apis(cluster=cluster, store=store, topics=topics, settings=group_settings),
    }
