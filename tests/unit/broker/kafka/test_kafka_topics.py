"""Which topic a name of Kafka's clients is."""

from __future__ import annotations

import time
import uuid

import pytest

from smq_broker.kafka.topics import KafkaTopics, topic_id
from smq_core.errors import UnknownTopic
from smq_core.model.entities import Layout, Topic, TopicSpec


class Known:
    """In place of a locator and the filer's names: topics with their names for Kafka."""

    def __init__(self, **topics: str | None) -> None:
        self.topics = {
            name.replace("__", "/"): Topic(name.replace("__", "/"), f"uid-{name}", TopicSpec(kafka_name=kafka))
            for name, kafka in topics.items()
        }
        self.names: dict[str, str] = {}
        for full, topic in self.topics.items():
            if topic.spec.kafka_name is not None:
                self.names.setdefault(topic.spec.kafka_name, full)
        self.reads = self.reads_of_names = 0

    def find(self, full: str, *, fresh: bool = False) -> tuple[Topic, Layout]:
        self.reads += 1
        if full not in self.topics:
            raise UnknownTopic(full, topic=full)
        topic = self.topics[full]
        return topic, Layout(topic=full, uid=topic.uid, partitions=4, segments=())

    def find_name(self, name: str) -> str | None:
        self.reads_of_names += 1
        return self.names.get(name)

    def kafka_topics(self) -> KafkaTopics:
        return KafkaTopics(self, lambda: [*self.topics, "default/gone"], self.find_name)  # type: ignore[arg-type]


def full_name(topics: KafkaTopics, name: str) -> str | None:
    found = topics.named(name)
    return found.topic.name if found is not None else None


def test_topics_have_their_own_name_or_that_of_their_spec() -> None:
    topics = Known(default__events=None, team__events=None, default__x="Order_Events").kafka_topics()
    assert full_name(topics, "events") == "default/events"
    assert full_name(topics, "team.events") == "team/events"
    assert full_name(topics, "Order_Events") == "default/x"
    assert full_name(topics, "x") is None, "a topic has one name only"
    assert full_name(topics, "default.events") is None
    assert full_name(topics, "a/b") is None and full_name(topics, "absent") is None
    assert [it.name for it in topics.all()] == ["Order_Events", "events", "team.events"]


def test_a_name_in_a_spec_goes_before_the_own_name_of_another_topic() -> None:
    topics = Known(default__x="team.events", team__events=None).kafka_topics()
    assert full_name(topics, "team.events") == "default/x"
    assert [it.topic.name for it in topics.all()] == ["default/x"]


def test_of_two_topics_with_one_name_the_filer_names_the_one_that_has_it() -> None:
    known = Known(default__x="N_1", default__y="N_1")
    topics = known.kafka_topics()
    assert full_name(topics, "N_1") == "default/x"
    del known.topics["default/x"]
    known.names["N_1"] = "default/y"
    assert full_name(topics, "N_1") == "default/y"


def test_a_name_is_read_from_the_filer_once() -> None:
    known = Known(default__x="N_1")
    topics = known.kafka_topics()
    assert topics.known("N_1") is None
    for _ in range(3):
        full_name(topics, "N_1")
    assert topics.known("N_1") == "default/x" and known.reads_of_names == 1


@pytest.mark.parametrize("kafka", [None, "N_1"])
def test_topics_are_found_by_their_id(kafka: str | None) -> None:
    topics = Known(default__x=kafka).kafka_topics()
    id_ = topics.all()[0].id
    found = topics.identified(id_)
    assert found is not None and found.topic.name == "default/x"


def test_ids_that_nobody_has_share_one_search(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    known = Known(default__x=None)
    topics = known.kafka_topics()
    assert all(topics.identified(uuid.UUID(int=number)) is None for number in range(100))
    assert known.reads == 3, "the two topics of the list, and the one that there is by its name"
    now += 10
    known.topics["default/y"] = known.topics["default/x"]
    assert topics.identified(topic_id("uid-default__x")) is not None


def test_many_names_are_looked_up_in_the_list_of_topics() -> None:
    known = Known(default__x=None)
    topics = known.kafka_topics()
    assert topics.unlisted(["x", "y", "gone", "Order_Events"]) == {"y"}
    assert known.reads == known.reads_of_names == 0
