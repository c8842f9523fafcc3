from __future__ import annotations

from dataclasses import replace

import pytest

from smq_core.model.entities import Topic, TopicSpec
from smq_storage.catalog import paths
from smq_storage.catalog.kafka_names import claim_kafka_name, topic_of_kafka_name
from smq_storage.catalog.topics import put_current, put_topic, read_current
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import Store, open_store

POLICY = RetryPolicy(timeout_seconds=0)
NAME = "Order_Events"


@pytest.fixture
def store() -> Store:
    return open_store("memory://")


def topic_in(store: Store, full: str, uid: str, name: str | None = NAME) -> Topic:
    topic = Topic(full, uid, TopicSpec(kafka_name=name))
    known = read_current(store, full)
    put_current(store, full, uid, known[1] if known is not None else None)
    put_topic(store, topic)
    return topic


def delete(store: Store, topic: Topic) -> None:
    known = read_current(store, topic.name)
    assert known is not None
    put_current(store, topic.name, "", known[1])


def test_the_first_topic_keeps_its_name_while_it_lives(store: Store) -> None:
    first, second = topic_in(store, "default/a", "u1"), topic_in(store, "default/b", "u2")
    assert topic_of_kafka_name(store, NAME) is None
    assert claim_kafka_name(store, first, POLICY) is None
    assert claim_kafka_name(store, second, POLICY) == "default/a"
    assert claim_kafka_name(store, first, POLICY) is None
    assert topic_of_kafka_name(store, NAME) == "default/a"
    delete(store, first)
    assert claim_kafka_name(store, second, POLICY) is None
    assert topic_of_kafka_name(store, NAME) == "default/b"


def test_a_topic_that_is_made_anew_has_its_name_again(store: Store) -> None:
    first = topic_in(store, "default/a", "u1")
    claim_kafka_name(store, first, POLICY)
    assert claim_kafka_name(store, topic_in(store, "default/a", "u2"), POLICY) is None


def test_a_topic_that_has_given_up_the_name_does_not_keep_it(store: Store) -> None:
    first = topic_in(store, "default/a", "u1")
    claim_kafka_name(store, first, POLICY)
    topic_in(store, "default/a", "u3", name=None)
    assert claim_kafka_name(store, topic_in(store, "default/b", "u2"), POLICY) is None


def test_the_own_name_of_another_topic_is_taken(store: Store) -> None:
    mine = replace(topic_in(store, "default/a", "u1"), spec=TopicSpec(kafka_name="team-a.orders"))
    assert claim_kafka_name(store, mine, POLICY) is None
    other = topic_in(store, "team-a/orders", "u2", name=None)
    assert claim_kafka_name(store, mine, POLICY) == other.name
    delete(store, other)
    assert claim_kafka_name(store, mine, POLICY) is None


def test_every_name_of_kafka_is_one_file(store: Store) -> None:
    names = ["a.b.c", "_schemas", "..a", "." * 5, "X" * 249, "x" * 249]
    found = {paths.kafka_name(name) for name in names}
    assert len(found) == len(names) and all(path.count("/") == 1 for path in found)
