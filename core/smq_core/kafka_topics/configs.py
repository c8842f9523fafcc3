"""Kafka's configuration keys of a topic, as settings of its spec.

Brokers keep the log as Parquet in the filer, so most of Kafka's keys about its own log files have no meaning here. They
are accepted and not stored, because programs set them for topics that they create; other keys are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from smq_core.model.entities import TopicSpec
from smq_core.model.units import MAX_DURATION_US, MAX_SIZE_BYTES, UNLIMITED

RETENTION_MS, RETENTION_BYTES, CLEANUP_POLICY = "retention.ms", "retention.bytes", "cleanup.policy"
MIN_INSYNC_REPLICAS, MAX_MESSAGE_BYTES = "min.insync.replicas", "max.message.bytes"
COMPRESSION_TYPE, TIMESTAMP_TYPE = "compression.type", "message.timestamp.type"
DELETE, COMPACT = "delete", "compact"
NO_LIMIT = -1
US_PER_MS = 1000

# Kafka's keys about files, caches and cleaning of its log.
WITHOUT_EFFECT = frozenset(
    {
        "delete.retention.ms",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "index.interval.bytes",
        "local.retention.bytes",
        "local.retention.ms",
        "max.compaction.lag.ms",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "preallocate",
        "segment.bytes",
        "segment.index.bytes",
        "segment.jitter.ms",
        "segment.ms",
    }
)
# Values that cannot change, because brokers keep records as clients have sent them.
FIXED = {COMPRESSION_TYPE: "producer", TIMESTAMP_TYPE: "CreateTime"}
# Those that a topic has for Kafka's clients.
SETTABLE = (CLEANUP_POLICY, RETENTION_MS, RETENTION_BYTES)
KNOWN = frozenset({*SETTABLE, *FIXED, MIN_INSYNC_REPLICAS, MAX_MESSAGE_BYTES, *WITHOUT_EFFECT})


class InvalidConfig(Exception):
    """A key or value that is refused. Its text says why."""


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One key of a topic as clients see it. ``is_set``: it differs from what a topic has by default."""

    name: str
    value: str
    is_set: bool = False
    read_only: bool = False


def described(spec: TopicSpec, max_message_bytes: int) -> tuple[ConfigEntry, ...]:
    """All keys with a meaning here, in Kafka's words."""
    default = TopicSpec()
    retention_bytes = spec.retention_bytes
    per_partition = NO_LIMIT if retention_bytes is None else -(-retention_bytes // spec.partitions)
    retention_ms = NO_LIMIT if spec.retention_age is None else spec.retention_age // US_PER_MS
    policies = ",".join([*([COMPACT] if spec.kafka_compacts else []), *([DELETE] if _deletes(spec) else [])])
    return (
        ConfigEntry(CLEANUP_POLICY, policies, spec.kafka_compacts),
        ConfigEntry(RETENTION_MS, str(retention_ms), spec.retention_age != default.retention_age),
        ConfigEntry(RETENTION_BYTES, str(per_partition), retention_bytes is not None),
        ConfigEntry(MIN_INSYNC_REPLICAS, str(spec.replicas), spec.replicas != default.replicas, read_only=True),
        ConfigEntry(MAX_MESSAGE_BYTES, str(max_message_bytes), read_only=True),
        *(ConfigEntry(name, value, read_only=True) for name, value in FIXED.items()),
    )


def _deletes(spec: TopicSpec) -> bool:
    return not spec.kafka_compacts or spec.retention_age is not None or spec.retention_bytes is not None


def settings(
    configs: Mapping[str, str | None], *, partitions: int, replicas: int, max_message_bytes: int
) -> dict[str, Any]:
    """The fields of a Topic manifest's spec that these keys set. None stands for a field's default.

    A value that is None stands for the key's default. Raises InvalidConfig.
    """
    for name, value in configs.items():
        _check(name, value, replicas, max_message_bytes)
    policy = configs.get(CLEANUP_POLICY)
    compacts = policy is not None and COMPACT in policy_list(policy)
    retention: dict[str, Any] = {}
    if RETENTION_MS in configs:
        retention["age"] = _duration(configs[RETENTION_MS])
    if RETENTION_BYTES in configs:
        retention["bytes"] = _size(configs[RETENTION_BYTES], partitions)
    made: dict[str, Any] = {}
    if CLEANUP_POLICY in configs:
        made["kafka"] = {"cleanupPolicy": "Compact" if compacts else "Delete" if policy is not None else None}
        if compacts and policy is not None and DELETE not in policy_list(policy):
            # Kafka removes nothing by age or size then.
            retention = {"age": UNLIMITED, "bytes": UNLIMITED}
    return made | ({"retention": retention} if retention else {})


def policy_list(text: str) -> list[str]:
    return [part for it in text.split(",") if (part := it.strip())]


def _check(name: str, value: str | None, replicas: int, max_message_bytes: int) -> None:
    if name not in KNOWN:
        raise InvalidConfig(f"{name} is no configuration that topics have here: leave it out. {_listed()}")
    if value is None:
        return
    if name == CLEANUP_POLICY and not (policy_list(value) and {*policy_list(value)} <= {DELETE, COMPACT}):
        raise InvalidConfig(f"{name} must be delete, compact, or both with a comma between them, not {value!r}")
    if name in FIXED and value != FIXED[name]:
        raise InvalidConfig(f"{name} is always {FIXED[name]} here, because records are kept as clients send them")
    if name == MIN_INSYNC_REPLICAS and not 1 <= whole(name, value) <= replicas:
        raise InvalidConfig(
            f"{name} must be 1 to {replicas}, the replicas of the topic: an ack always waits for all of them"
        )
    if name == MAX_MESSAGE_BYTES and not 0 <= whole(name, value) <= max_message_bytes:
        raise InvalidConfig(f"{name} must be at most {max_message_bytes}, which is --max-batch of the brokers")


def _duration(value: str | None) -> str | None:
    if value is None:
        return None
    ms = whole(RETENTION_MS, value)
    if ms == NO_LIMIT or ms * US_PER_MS > MAX_DURATION_US:
        return UNLIMITED
    if ms < NO_LIMIT:
        raise InvalidConfig(f"{RETENTION_MS} must be at least 0, or {NO_LIMIT} for no limit, not {value}")
    # The longest number of milliseconds in a manifest has twelve digits, and none is 0.
    return f"{max(1, ms)}ms" if ms < 10**12 else f"{ms // 1000}s"


def _size(value: str | None, partitions: int) -> str | None:
    """Kafka's limit is that of each partition, and here it is that of the topic."""
    if value is None:
        return None
    size = whole(RETENTION_BYTES, value)
    if size == NO_LIMIT or size * partitions > MAX_SIZE_BYTES:
        return UNLIMITED
    if size < NO_LIMIT:
        raise InvalidConfig(f"{RETENTION_BYTES} must be at least 0, or {NO_LIMIT} for no limit, not {value}")
    return str(max(1, size * partitions))


def whole(name: str, value: str) -> int:
    """Raises InvalidConfig."""
    text = value.strip()
    if not (text.removeprefix("-").isascii() and text.removeprefix("-").isdigit() and len(text) <= 20):
        raise InvalidConfig(f"{name} must be a whole number, not {value[:60]!r}")
    return int(text)


def _listed() -> str:
    return f"Those with an effect are {', '.join(sorted(KNOWN - WITHOUT_EFFECT))}"
