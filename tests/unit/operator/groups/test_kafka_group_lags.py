"""What the leader says of groups of Kafka clients: their lag by what is in files, beside groups of the same name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from smq_core.kafka_groups.offsets import CommittedOffset, TopicOffsets
from smq_core.model.entities import Topic
from smq_core.model.keyspace import KeyRange, Partitioner
from smq_operator.cleanup.filer_clock import FilerClock
from smq_operator.groups.kafka_group_lags import KafkaGroupLags
from smq_operator.groups.kafka_groups import KafkaGroups
from smq_operator.runtime.problems import LeaderProblems
from smq_operator.runtime.store_pool import StorePool
from smq_storage.catalog import paths
from smq_storage.catalog.kafka_groups import StoredKafkaGroup, put_kafka_group
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import Store, open_store
from smq_storage.partitions.stored_ends import stored_ends
from support.data.counted_topic import CountedTopic


def commit(store: Store, topic: Topic, name: str, offsets: dict[int, int]) -> None:
    committed = TopicOffsets(topic.name, {at: CommittedOffset(offset) for at, offset in offsets.items()})
    group = StoredKafkaGroup(name=name, writer="w", offsets={topic.uid: committed})
    put_kafka_group(store, group, None, RetryPolicy(2.0))


@pytest.fixture
def counted() -> CountedTopic:
    """Partition 0 ends at 3, with a message in the living segment; partition 1 at 1, in a sealed one."""
    made = CountedTopic(open_store("memory://"), 2)
    first = made.open()
    made.write(first, [0, 0, 1])
    made.seal(first)
    made.index(first)
    made.write(made.open(KeyRange(0, 2), [first]), [0])
    return made


def lags_of(store: Store) -> KafkaGroupLags:
    pool = StorePool(store, None)
    groups = KafkaGroups(pool, lambda: 0, FilerClock(pool, lambda: 0), LeaderProblems())
    return KafkaGroupLags(groups, pool)


def test_the_ends_of_partitions_are_those_of_sealed_and_living_segments(counted: CountedTopic) -> None:
    found = stored_ends(counted.store, counted.topic)
    assert found.partitions == {0: 3, 1: 1} and list(found.segments.values()) == [1]
    empty = CountedTopic(open_store("memory://"), 2)
    empty.open()
    assert stored_ends(empty.store, empty.topic).partitions == {0: 0, 1: 0}


async def test_the_lag_is_what_is_not_committed_of_each_partition(counted: CountedTopic) -> None:
    commit(counted.store, counted.topic, "late", {0: 1, 1: 0})
    commit(counted.store, counted.topic, "ahead", {0: 5})
    lags = lags_of(counted.store)
    found = {it.group.name: (it.messages, it.partitions) for it in await lags.of(counted.topic)}
    assert found == {"ahead": (0, {0: (5, 3)}), "late": (3, {0: (1, 3), 1: (0, 1)})}
    assert await lags.has(counted.topic, "late") and not await lags.has(counted.topic, "nobody")


async def test_what_cannot_be_read_hides_no_group(counted: CountedTopic) -> None:
    commit(counted.store, counted.topic, "g", {0: 1})
    counted.store.put(paths.kafka_group("bad"), b"{")
    assert [(it.group.name, it.messages) for it in await lags_of(counted.store).of(counted.topic)] == [
        ("bad", None),
        ("g", 2),
    ]


async def test_topics_that_kafka_clients_cannot_read_have_none(counted: CountedTopic) -> None:
    commit(counted.store, counted.topic, "g", {0: 1})
    other = replace(counted.topic, spec=replace(counted.topic.spec, partitioner=Partitioner.HASH))
    assert await lags_of(counted.store).of(other) == []
