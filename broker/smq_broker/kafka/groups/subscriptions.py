"""What the members of a group say that they read, in the metadata of Kafka's consumers."""

from __future__ import annotations

import struct

from smq_core.kafka_groups.group import KafkaGroup

CONSUMER = "consumer"


def subscribed_topics(group: KafkaGroup) -> set[str]:
    """All topics of a group of consumers. Members whose metadata is of another kind count for nothing."""
    if group.protocol_type != CONSUMER:
        return set()
    found: set[str] = set()
    for member in group.members.by_id.values():
        for protocol in member.request.protocols:
            found.update(_topics(protocol.metadata))
    return found


def _topics(metadata: bytes) -> list[str]:
    """A version and an array of names, whatever follows."""
    try:
        _, size = struct.unpack_from(">hi", metadata)
        names, at = [], 6
        for _ in range(size):
            (length,) = struct.unpack_from(">h", metadata, at)
            names.append(str(metadata[at + 2 : at + 2 + length], "utf-8"))
            at += 2 + length
    except (struct.error, UnicodeDecodeError):
        return []
    return names
