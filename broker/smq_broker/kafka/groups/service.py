"""The APIs of groups, from the parts of the listener."""

from __future__ import annotations

from smq_broker.kafka.cluster import KafkaCluster
from smq_broker.kafka.executor import Blocking
from smq_broker.kafka.groups.consumer_description import ConsumerDescriptionApi
from smq_broker.kafka.groups.consumer_membership import ConsumerMembershipApi
from smq_broker.kafka.groups.coordinator import GroupCoordinator
from smq_broker.kafka.groups.find_coordinator import FindCoordinatorApi
from smq_broker.kafka.groups.group_admin import GroupAdminApi
from smq_broker.kafka.groups.group_files import GroupFiles
from smq_broker.kafka.groups.group_offsets import GroupOffsetsApi
from smq_broker.kafka.groups.membership import MembershipApi
from smq_broker.kafka.groups.topic_lookup import TopicLookup
from smq_broker.kafka.protocol.messages import Api, ApiTable
from smq_broker.kafka.topics import KafkaTopics
from smq_core.kafka_groups.requests import GroupSettings
from smq_storage.object_store.store import Store

OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = range(8, 15)
DESCRIBE_GROUPS, LIST_GROUPS, DELETE_GROUPS, OFFSET_DELETE = 15, 16, 42, 47
CONSUMER_GROUP_HEARTBEAT, CONSUMER_GROUP_DESCRIBE = 68, 69


def group_apis(*, cluster: KafkaCluster, store: Store, topics: KafkaTopics, settings: GroupSettings) -> ApiTable:
    # Separate threads: reads of old messages must not keep commits waiting.
    blocking = Blocking()
    files = GroupFiles(store, blocking)
    coordinator = GroupCoordinator(cluster=cluster, files=files, settings=settings)
    find, members, admin = FindCoordinatorApi(coordinator), MembershipApi(coordinator), GroupAdminApi(coordinator)
    # Subscriptions may name thousands of topics, for which commits must not wait either.
    consumers = ConsumerMembershipApi(coordinator, TopicLookup(topics, Blocking()))
    offsets = GroupOffsetsApi(coordinator=coordinator, files=files, topics=topics, blocking=blocking)
    return {
        OFFSET_COMMIT: Api(2, 9, offsets.commit),
        OFFSET_FETCH: Api(1, 9, offsets.fetch),
        FIND_COORDINATOR: Api(0, 6, find.find),
        JOIN_GROUP: Api(0, 9, members.join),
        HEARTBEAT: Api(0, 4, members.heartbeat),
        LEAVE_GROUP: Api(0, 5, members.leave),
        SYNC_GROUP: Api(0, 5, members.sync),
        DESCRIBE_GROUPS: Api(0, 6, admin.describe),
        LIST_GROUPS: Api(0, 5, admin.list_groups),
        DELETE_GROUPS: Api(0, 2, admin.delete),
        OFFSET_DELETE: Api(0, 0, offsets.delete),
        CONSUMER_GROUP_HEARTBEAT: Api(0, 1, consumers.heartbeat),
        CONSUMER_GROUP_DESCRIBE: Api(0, 1, ConsumerDescriptionApi(coordinator).describe),
    }
