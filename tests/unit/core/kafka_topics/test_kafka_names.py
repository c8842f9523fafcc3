from __future__ import annotations

import pytest

from smq_core.kafka_topics.names import is_kafka_name, own_name, resource_name, topic_of_own_name
from smq_core.model.names import is_label


@pytest.mark.parametrize(
    ("kafka", "full"),
    [
        ("events", "default/events"),
        ("team-a.events", "team-a/events"),
        ("default.events", None),  # that topic is called `events`
        ("a.b.c", None),
        ("Order_Events", None),
        (".a", None),
    ],
)
def test_a_topic_is_called_by_its_own_name(kafka: str, full: str | None) -> None:
    assert topic_of_own_name(kafka) == full
    assert full is None or own_name(full) == kafka


@pytest.mark.parametrize("name", ["a", "server.schema.table", "_schemas", "Order_Events", "__x-1.y", "a" * 249])
def test_names_of_kafka(name: str) -> None:
    assert is_kafka_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ü", "a\n", "a" * 250])
def test_names_that_kafka_refuses(name: str) -> None:
    assert not is_kafka_name(name)


def test_every_name_gets_a_resource_of_its_own_that_resembles_it() -> None:
    names = ["Order_Events", "order.events", "order-events", "order_events", "__", "_schemas", "a" * 249, "A" * 249]
    resources = {name: resource_name(name) for name in names}
    assert all(map(is_label, resources.values()))
    assert len(set(resources.values())) == len(names)
    assert resources["order-events"] == "order-events"
    assert resources["Order_Events"].startswith("order-events-")
    assert resources == {name: resource_name(name) for name in names}, "the same at every broker"
