from __future__ import annotations

from typing import Any

import pytest

from smq_core.kafka_topics.configs import InvalidConfig, described, settings
from smq_core.model.entities import TopicSpec

MAX = 1 << 20
DAY_US = 86_400_000_000


def made(**configs: str | None) -> dict[str, Any]:
    named = {name.replace("_", "."): value for name, value in configs.items()}
    return settings(named, partitions=4, replicas=2, max_message_bytes=MAX)


@pytest.mark.parametrize(
    ("configs", "fields"),
    [
        ({"retention_ms": "60000"}, {"retention": {"age": "60000ms"}}),
        ({"retention_ms": "0"}, {"retention": {"age": "1ms"}}),
        ({"retention_ms": "-1"}, {"retention": {"age": "unlimited"}}),
        ({"retention_ms": "9223372036854775807"}, {"retention": {"age": "unlimited"}}),
        ({"retention_ms": "1000000000000"}, {"retention": {"age": "1000000000s"}}),
        ({"retention_ms": None}, {"retention": {"age": None}}),
        ({"retention_bytes": "1000"}, {"retention": {"bytes": "4000"}}),
        ({"retention_bytes": "-1"}, {"retention": {"bytes": "unlimited"}}),
        (
            {"cleanup_policy": "compact", "retention_ms": "5"},
            {"kafka": {"cleanupPolicy": "Compact"}, "retention": {"age": "unlimited", "bytes": "unlimited"}},
        ),
        (
            {"cleanup_policy": "compact, delete", "retention_ms": "5"},
            {"kafka": {"cleanupPolicy": "Compact"}, "retention": {"age": "5ms"}},
        ),
        ({"cleanup_policy": "delete"}, {"kafka": {"cleanupPolicy": "Delete"}}),
        ({"cleanup_policy": None}, {"kafka": {"cleanupPolicy": None}}),
        ({"min_insync_replicas": "2", "max_message_bytes": str(MAX), "compression_type": "producer"}, {}),
        ({"segment_bytes": "1", "segment_ms": "any"}, {}),
    ],
)
def test_configs_become_fields_of_a_spec(configs: dict[str, str | None], fields: dict[str, Any]) -> None:
    assert made(**configs) == fields


@pytest.mark.parametrize(
    "configs",
    [
        {"retention_ms": "-2"},
        {"retention_ms": "1.5"},
        {"retention_ms": "٣"},
        {"retention_bytes": "-3"},
        {"cleanup_policy": "shred"},
        {"cleanup_policy": ""},
        {"min_insync_replicas": "3"},
        {"min_insync_replicas": "0"},
        {"max_message_bytes": str(MAX + 1)},
        {"compression_type": "zstd"},
        {"message_timestamp_type": "LogAppendTime"},
        {"no_such_key": "1"},
        {"no_such_key": None},
    ],
)
def test_other_keys_and_values_are_refused(configs: dict[str, str | None]) -> None:
    with pytest.raises(InvalidConfig, match=next(iter(configs)).replace("_", ".")):
        made(**configs)


def test_a_topic_is_described_in_the_words_of_kafka() -> None:
    spec = TopicSpec(partitions=4, replicas=3, retention_age=3 * DAY_US, retention_bytes=4001)
    found = {it.name: it for it in described(spec, MAX)}
    assert {name: it.value for name, it in found.items()} == {
        "cleanup.policy": "delete",
        "retention.ms": "259200000",
        "retention.bytes": "1001",
        "min.insync.replicas": "3",
        "max.message.bytes": str(MAX),
        "compression.type": "producer",
        "message.timestamp.type": "CreateTime",
    }
    assert {name for name, it in found.items() if it.is_set} == {
        "retention.ms",
        "retention.bytes",
        "min.insync.replicas",
    }
    assert {name for name, it in found.items() if not it.read_only} == {
        "cleanup.policy",
        "retention.ms",
        "retention.bytes",
    }


def test_what_a_topic_says_of_itself_is_accepted_again() -> None:
    for spec in (TopicSpec(), TopicSpec(retention_age=None, kafka_compacts=True), TopicSpec(kafka_compacts=True)):
        configs = {it.name: it.value for it in described(spec, MAX)}
        settings(configs, partitions=spec.partitions, replicas=spec.replicas, max_message_bytes=MAX)


@pytest.mark.parametrize(
    ("spec", "policy"),
    [
        (TopicSpec(), "delete"),
        (TopicSpec(retention_age=None), "delete"),
        (TopicSpec(kafka_compacts=True), "compact,delete"),
        (TopicSpec(kafka_compacts=True, retention_age=None), "compact"),
        (TopicSpec(kafka_compacts=True, retention_age=None, retention_bytes=1), "compact,delete"),
    ],
)
def test_the_cleanup_policy_says_whether_messages_are_removed(spec: TopicSpec, policy: str) -> None:
    assert described(spec, MAX)[0].value == policy
