"""Broken rules of topics that Kafka's clients create, name and configure."""

from __future__ import annotations

from .mutation import Mutation

CREATE = "broker/smq_broker/kafka/admin/create_topics.py"
ALTER = "broker/smq_broker/kafka/admin/alter_configs.py"
PARTITIONS = "broker/smq_broker/kafka/admin/topic_partitions.py"
TOPICS = "broker/smq_broker/kafka/topics.py"
CONFIGS = "core/smq_core/kafka_topics/configs.py"
NAMES = "storage/smq_storage/catalog/kafka_names.py"
ADMIN = "operator/smq_operator/api/admin.py"
TEST_ADMIN = "tests/unit/broker/kafka/test_admin_apis.py"
TEST_TOPICS = "tests/unit/broker/kafka/test_kafka_topics.py"
TEST_CONFIGS = "tests/unit/core/kafka_topics/test_kafka_configs.py"
TEST_NAMES = "tests/unit/storage/test_kafka_names.py"
TEST_LEADER = "tests/unit/operator/api/test_kafka_names.py"

MUTATIONS = (
    Mutation(
        "create_topics_that_no_client_wants",
        "A Metadata request creates topics only if it says so.",
        "broker/smq_broker/kafka/apis/metadata.py",
        'if getattr(request, "allow_auto_topic_creation", True) else None',
        "",
        ("tests/unit/broker/kafka/test_admin_apis.py::test_topics_are_created_by_nobody_who_does_not_want_it",),
    ),
    Mutation(
        "keep_what_groups_of_kafka_clients_have_not_read",
        "Retention of a topic that a Kafka client creates expires what is unread.",
        CREATE,
        ' | {"unread": "Expire"}',
        "",
        (f"{TEST_ADMIN}::test_a_topic_is_created_as_users_of_kafka_expect",),
    ),
    Mutation(
        "create_topics_of_kafka_clients_with_one_replica",
        "A topic with a replication factor of 1 has two replicas.",
        CREATE,
        "return max(given, MIN_REPLICAS)",
        "return int(given)",
        (f"{TEST_ADMIN}::test_the_cluster_chooses_what_a_client_leaves_to_it",),
    ),
    Mutation(
        "reset_what_an_incremental_change_does_not_name",
        "IncrementalAlterConfigs leaves other keys as they are.",
        ALTER,
        "made: _Configs = dict(present)",
        "made: _Configs = {}",
        (f"{TEST_ADMIN}::test_incremental_changes_leave_the_rest",),
    ),
    Mutation(
        "expire_messages_of_compacted_topics",
        "A topic that is compacted for Kafka's clients has no limit of age or size.",
        CONFIGS,
        'retention = {"age": UNLIMITED, "bytes": UNLIMITED}',
        "pass",
        (f"{TEST_CONFIGS}::test_configs_become_fields_of_a_spec",),
    ),
    Mutation(
        "take_the_limit_of_a_partition_for_that_of_the_topic",
        "retention.bytes of Kafka is that of one partition.",
        CONFIGS,
        "return str(max(1, size * partitions))",
        "return str(max(1, size))",
        (f"{TEST_CONFIGS}::test_configs_become_fields_of_a_spec",),
    ),
    Mutation(
        "skip_partitions_between_two_pages",
        "DescribeTopicPartitions continues at the partition after the last one.",
        PARTITIONS,
        '"partition_index": numbers[-1] + 1}',
        '"partition_index": numbers[-1] + 2}',
        (f"{TEST_ADMIN}::test_partitions_are_described_in_pages",),
    ),
    Mutation(
        "find_topics_by_two_names",
        "A topic with a name for Kafka's clients has no other one there.",
        TOPICS,
        "if found is not None and found.name == name:",
        "if found is not None:",
        (f"{TEST_TOPICS}::test_topics_have_their_own_name_or_that_of_their_spec",),
    ),
    Mutation(
        "take_the_name_of_a_living_topic",
        "A name for Kafka's clients stays that of its topic while it lives.",
        NAMES,
        "if known is not None and known.topic != topic.name and _is_living(store, known):",
        "if False:",
        (f"{TEST_NAMES}::test_the_first_topic_keeps_its_name_while_it_lives",),
    ),
    Mutation(
        "change_a_topic_that_should_be_new",
        "A topic that two clients create at once is that of the first one.",
        ADMIN,
        "if request.must_be_new and (known is not None or not self.topics.synced):",
        "if False:",
        (f"{TEST_LEADER}::test_a_topic_that_must_be_new_changes_no_other",),
    ),
)
