"""What the members of a group say that they read, in the metadata of Kafka's consumers."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from smq_core.kafka_groups.consumer.group import ConsumerGroup
from smq_core.kafka_groups.group import KafkaGroup

CONSUMER = "consumer"


def subscribed_topics(group: KafkaGroup | ConsumerGroup) -> set[str]:
    """All topics of a group of consumers. Members whose metadata is of another kind count for nothing."""
    if isinstance(group, ConsumerGroup):
        return set(group.subscribed())
    metadata = [it.metadata for member in group.members.by_id.values() for it in member.request.protocols]
    return topics_in(group.protocol_type or "", metadata)


def topics_in(protocol_type: str, protocols: Iterable[bytes]) -> set[str]:
    """The topics in the metadata of one member."""
    return {name for metadata in protocols for name in _topics(metadata)} if protocol_type == CONSUMER else set()


def _topics(metadata: bytes) -> list[str]:
    """A version and an array of names, whatever follows. Nothing if it is not that."""
    try:
        _, size = struct.unpack_from(">hi", metadata)
        names, at = [], 6
        for _ in range(size):
            (length,) = struct.unpack_from(">h", metadata, at)
            at += 2
            if not 0 <= length <= len(metadata) - at:
                return []
            names.append(str(metadata[at : at + length], "utf-8"))
            at += length
    except (struct.error, UnicodeDecodeError):
        return []
    return names
