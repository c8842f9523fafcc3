"""Which partitions each member should have, by the assignors that Kafka's brokers have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from smq_core.kafka_groups.consumer.partitions import Partitions, TopicPartition, by_topic


class Subscriber(NamedTuple):
    """A member. ``topics`` are the ids of those that there are."""

    id: str
    instance_id: str | None
    topics: frozenset[str]


# From the members, the number of partitions of each topic, and the target until now: the target of each member.
Assignor: TypeAlias = Callable[
    [Sequence[Subscriber], Mapping[str, int], Mapping[str, Partitions]], dict[str, Partitions]
]


def assign_ranges(
    subscribers: Sequence[Subscriber], sizes: Mapping[str, int], _: Mapping[str, Partitions]
) -> dict[str, Partitions]:
    """Each member gets a range of each topic. Topics with equal sizes and members have equal ranges."""
    found: dict[str, set[TopicPartition]] = {it.id: set() for it in subscribers}
    # Static members first, because their order stays when they begin anew.
    ordered = sorted(subscribers, key=lambda it: (it.instance_id is None, it.instance_id or it.id))
    for topic, size in sizes.items():
        own = [it for it in ordered if topic in it.topics]
        start = 0
        for number, it in enumerate(own):
            quota, extra = divmod(size, len(own))
            end = start + quota + (number < extra)
            found[it.id].update((topic, at) for at in range(start, end))
            start = end
    return {id_: frozenset(it) for id_, it in found.items()}


def assign_uniformly(
    subscribers: Sequence[Subscriber], sizes: Mapping[str, int], current: Mapping[str, Partitions]
) -> dict[str, Partitions]:
    """All members get as many partitions, and what is moved is as little as that allows."""
    if len({it.topics for it in subscribers}) <= 1:
        return _assign_evenly(subscribers, sizes, current)
    return _balance(subscribers, sizes, current)


def _assign_evenly(
    subscribers: Sequence[Subscriber], sizes: Mapping[str, int], current: Mapping[str, Partitions]
) -> dict[str, Partitions]:
    """All members subscribe to the same topics."""
    topics = subscribers[0].topics if subscribers else frozenset()
    left = {(topic, number) for topic in topics for number in range(sizes[topic])}
    quota, extra = divmod(len(left), max(len(subscribers), 1))
    kept: dict[str, list[TopicPartition]] = {}
    # Who has most keeps the extra ones.
    for it in sorted(subscribers, key=lambda it: (-len(current.get(it.id, ())), it.id)):
        own = sorted(left.intersection(current.get(it.id, ())))[: quota + (extra > 0)]
        extra -= len(own) > quota
        kept[it.id] = own
        left.difference_update(own)
    rest = sorted(left, reverse=True)
    for own in kept.values():
        size = quota
        if len(own) <= quota and extra > 0:
            size, extra = size + 1, extra - 1
        while len(own) < size:
            own.append(rest.pop())
    return {id_: frozenset(it) for id_, it in kept.items()}


def _balance(
    subscribers: Sequence[Subscriber], sizes: Mapping[str, int], current: Mapping[str, Partitions]
) -> dict[str, Partitions]:
    """Members subscribe to different topics: each partition goes to the member with the fewest that may have it."""
    left = {(topic, number) for topic, size in sizes.items() for number in range(size)}
    members = {topic: sorted(it.id for it in subscribers if topic in it.topics) for topic in sizes}
    found: dict[str, set[TopicPartition]] = {}
    for it in sorted(subscribers):
        found[it.id] = {at for at in current.get(it.id, ()) if at in left and at[0] in it.topics}
        left -= found[it.id]

    def with_fewest(topic: str) -> str:
        return min(members[topic], key=lambda id_: len(found[id_]))

    for at in sorted(left, key=lambda it: (len(members[it[0]]), it)):
        if members[at[0]]:
            found[with_fewest(at[0])].add(at)
    is_moved = True
    while is_moved:  # each move makes the members more equal, so it ends
        is_moved = False
        fewest = min(map(len, found.values()))
        for own in sorted(found.values(), key=len, reverse=True):
            if len(own) - fewest <= 1:
                break
            for topic, numbers in by_topic(own).items():
                for number in reversed(numbers):
                    other = found[with_fewest(topic)]
                    if len(own) - len(other) <= 1:
                        break
                    own.remove((topic, number))
                    other.add((topic, number))
                    is_moved = True
    return {id_: frozenset(it) for id_, it in found.items()}


DEFAULT_ASSIGNOR = "uniform"
ASSIGNORS: Mapping[str, Assignor] = MappingProxyType({DEFAULT_ASSIGNOR: assign_uniformly, "range": assign_ranges})
