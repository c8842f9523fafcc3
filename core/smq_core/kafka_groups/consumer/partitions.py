"""Sets of partitions, flat for calculations and by topic for documents and messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

# The id of a topic as Kafka's clients know it, and the number of a partition.
TopicPartition: TypeAlias = tuple[str, int]
Partitions: TypeAlias = frozenset[TopicPartition]

# By the topic's id, in ascending order.
PartitionsByTopic: TypeAlias = Mapping[str, tuple[int, ...]]


class TopicSize(NamedTuple):
    """What a name stands for now: the topic's id, and how many partitions it has."""

    id: str
    partitions: int


def flat(by_topic: PartitionsByTopic) -> Partitions:
    return frozenset((topic, number) for topic, numbers in by_topic.items() for number in numbers)


def by_topic(partitions: Iterable[TopicPartition]) -> PartitionsByTopic:
    found: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        found.setdefault(topic, []).append(number)
    return {topic: tuple(numbers) for topic, numbers in found.items()}
