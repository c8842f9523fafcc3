"""Splits a request that is about partitions by the brokers that lead them, and merges their responses."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

from kio.schema.errors import ErrorCode

from smq_broker.kafka.proxy.brokers.routes import TopicKey

# Where a partition of a request goes; None is the broker that the client uses for what is about no partition.
LeaderOf: TypeAlias = Callable[[TopicKey, int], int | None]

# A broker answers so if it does not lead the partition, or does not know the topic.
STALE = frozenset(
    {
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.leader_not_available,
        ErrorCode.not_leader_or_follower,
        ErrorCode.unknown_topic_id,
    }
)


class Shape(NamedTuple):
    """How a response names its topics, and their partitions."""

    topics: str = "topics"
    partitions: str = "partitions"


def replaced(it: Any, **changes: Any) -> Any:
    """A copy with other values, of kio's entities and of named tuples."""
    return it._replace(**changes) if hasattr(it, "_replace") else dataclasses.replace(it, **changes)


def topic_key(topic: Any) -> TopicKey:
    """Of a topic in a request or in a response."""
    id_ = getattr(topic, "topic_id", None)
    if id_ is not None:
        return id_  # type: ignore[no-any-return]
    return topic.name if hasattr(topic, "name") else topic.topic  # type: ignore[no-any-return]


def number_of(partition: Any) -> int:
    """Of a partition in a request or in a response."""
    for name in ("partition_index", "partition", "index"):
        if hasattr(partition, name):
            return int(getattr(partition, name))
    raise TypeError(f"{partition} is no partition")


def split(topics: Iterable[Any], leader_of: LeaderOf) -> dict[int | None, list[Any]]:
    """The topics for each broker, with the partitions that it leads. A topic without partitions belongs to None."""
    found: dict[int | None, list[Any]] = {}
    for topic in topics:
        key = topic_key(topic)
        own: dict[int | None, list[Any]] = {} if topic.partitions else {None: []}
        for partition in topic.partitions:
            own.setdefault(leader_of(key, number_of(partition)), []).append(partition)
        for node, partitions in own.items():
            found.setdefault(node, []).append(replaced(topic, partitions=tuple(partitions)))
    return found


def merge(responses: Sequence[Any], shape: Shape) -> Any:
    """One response with the partitions of all. The client has to wait as long as the strictest broker says."""
    first, *others = responses
    if not others:
        return first
    topics: dict[TopicKey, Any] = {}
    partitions: dict[TopicKey, list[Any]] = {}
    for response in responses:
        for topic in getattr(response, shape.topics):
            topics.setdefault(topic_key(topic), topic)
            partitions.setdefault(topic_key(topic), []).extend(getattr(topic, shape.partitions))
    merged = [replaced(topic, **{shape.partitions: tuple(partitions[key])}) for key, topic in topics.items()]
    changes: dict[str, Any] = {shape.topics: tuple(merged)}
    if hasattr(first, "throttle_time"):
        changes["throttle_time"] = max(it.throttle_time for it in responses)
    return replaced(first, **changes)


def stale_partitions(response: Any, shape: Shape) -> list[tuple[TopicKey, int]]:
    """Those that the broker does not lead."""
    return [
        (topic_key(topic), number_of(it))
        for topic in getattr(response, shape.topics)
        for it in getattr(topic, shape.partitions)
        if it.error_code in STALE
    ]
