"""The APIs with which clients look after topics, from the parts of the listener."""

from __future__ import annotations

from smq_broker.kafka.admin.acls import create_acls, delete_acls, describe_acls
from smq_broker.kafka.admin.alter_configs import AlterConfigsApi
from smq_broker.kafka.admin.create_topics import DEFAULT_PARTITIONS, MIN_REPLICAS, CreateTopicsApi
from smq_broker.kafka.admin.delete_records import DeleteRecordsApi
from smq_broker.kafka.admin.delete_topics import DeleteTopicsApi
from smq_broker.kafka.admin.describe_configs import DescribeConfigsApi, broker_configs
from smq_broker.kafka.admin.topic_changes import TopicChanges
from smq_broker.kafka.admin.topic_partitions import TopicPartitionsApi
from smq_broker.kafka.apis.leaders import Leaders
from smq_broker.kafka.cluster import KafkaCluster
from smq_broker.kafka.executor import Blocking
from smq_broker.kafka.partitions.histories import Histories
from smq_broker.kafka.protocol.messages import Api, ApiTable
from smq_broker.kafka.topics import KafkaTopics

CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS, CREATE_PARTITIONS, DESCRIBE_TOPIC_PARTITIONS = 19, 20, 21, 37, 75
DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS = 29, 30, 31
DESCRIBE_CONFIGS, ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS = 32, 33, 44


def admin_apis(
    *,
    cluster: KafkaCluster,
    topics: KafkaTopics,
    leaders: Leaders,
    histories: Histories,
    blocking: Blocking,
    changes: TopicChanges,
    create: CreateTopicsApi,
    max_batch: int,
) -> ApiTable:
    delete = DeleteTopicsApi(topics, changes)
    records = DeleteRecordsApi(leaders=leaders, histories=histories, blocking=blocking)
    alter = AlterConfigsApi(topics=topics, changes=changes, max_message_bytes=max_batch)
    describe = DescribeConfigsApi(
        topics=topics,
        changes=changes,
        cluster=cluster,
        max_message_bytes=max_batch,
        broker_configs=broker_configs(
            partitions=DEFAULT_PARTITIONS, replicas=MIN_REPLICAS, max_message_bytes=max_batch
        ),
    )
    return {
        CREATE_TOPICS: Api(2, 7, create.create_topics),
        DELETE_TOPICS: Api(1, 6, delete.delete_topics),
        DELETE_RECORDS: Api(0, 2, records.delete_records),
        DESCRIBE_ACLS: Api(1, 3, describe_acls),
        CREATE_ACLS: Api(1, 3, create_acls),
        DELETE_ACLS: Api(1, 3, delete_acls),
        DESCRIBE_CONFIGS: Api(1, 4, describe.describe_configs),
        ALTER_CONFIGS: Api(0, 2, alter.alter_configs),
        CREATE_PARTITIONS: Api(0, 3, create.create_partitions),
        INCREMENTAL_ALTER_CONFIGS: Api(0, 1, alter.incremental_alter_configs),
        DESCRIBE_TOPIC_PARTITIONS: Api(0, 0, TopicPartitionsApi(cluster, topics, blocking).describe),
    }
