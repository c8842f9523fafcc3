"""What a program and a debugger show of the public objects: one line that says what it is, and never a secret."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import smq
from smq.aio import AsyncDelivery, connect
from smq.producer import Producer
from smq.topics_consumer import TopicsConsumer
from smq_core.errors import DeliveryTimeout
from support.in_memory.acking_engine import engine
from support.in_memory.consumer_bench import Bench


@pytest.mark.parametrize("name", [n for n in smq.__all__ if isinstance(getattr(smq, n), type)])
def test_no_public_class_has_the_repr_of_object(name: str) -> None:
    assert getattr(smq, name).__repr__ is not object.__repr__


def test_a_client_and_its_admin_show_the_leader() -> None:
    with smq.connect("a:1,b:2") as client:
        assert (repr(client), repr(client.admin())) == ("<Client of a:1, b:2>", "<Admin of a:1, b:2>")
    assert repr(client) == "<Client of a:1, b:2, closed>"
    with smq.connect("a:1", via="relay:3") as client:
        assert repr(client) == "<Client of a:1 via relay:3>"


def test_a_client_without_a_leader_shows_the_filer_and_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SMQ_LEADER", raising=False)
    secret = {"filer_access_key": "key-7", "filer_secret_key": "secret-7"}
    with smq.connect(filer_url="s3://bucket/prefix", **secret) as client:
        assert repr(client) == "<Client of the files at s3://bucket/prefix>"


def test_a_consumer_shows_its_topic_and_its_group(bench: Bench) -> None:
    consumer = bench.open()
    assert repr(consumer) == "<Consumer of default/t>"
    consumer.close()
    assert repr(consumer) == "<Consumer of default/t, closed>"
    assert repr(bench.open("report")) == "<Consumer of default/t, group 'report'>"


def test_a_consumer_of_several_topics_shows_some() -> None:
    opened: Any = lambda topic, changed: SimpleNamespace(close=lambda: None)  # noqa: E731
    assert repr(TopicsConsumer(["b", "a"], opened)) == "<TopicsConsumer of a, b>"
    assert repr(TopicsConsumer([str(n) for n in range(7)], opened)) == "<TopicsConsumer of 0, 1, 2, 3, 4 and 2 more>"
    assert repr(TopicsConsumer([], opened)) == "<TopicsConsumer of no topic>"


def test_a_producer_and_its_deliveries_show_the_outcome(open_producer: Callable[..., Producer]) -> None:
    producer = open_producer(3600.0)
    assert repr(producer) == "<Producer of t>"
    delivery = producer.write(pa.table({"value": [b"a", b"b"]}))
    assert repr(delivery) == "<Delivery: no outcome yet>"
    (sub_batch,) = engine(producer).submitted
    engine(producer).answer(sub_batch)
    assert repr(delivery).startswith("<Delivery: <TableReceipt of 2 rows in ")
    assert "\n" not in repr(delivery.result(0))


def test_a_delivery_that_failed_shows_why() -> None:
    class Failed(smq.Delivery[smq.Receipt]):
        def done(self) -> bool:
            return True

        def _known_error(self) -> BaseException:
            return DeliveryTimeout("late")

    assert repr(Failed()) == "<Delivery: failed with DeliveryTimeout>"
    assert repr(AsyncDelivery(Failed())) == "<AsyncDelivery: failed with DeliveryTimeout>"


def test_what_is_awaited_shows_the_same() -> None:
    async def shown() -> tuple[str, str]:
        async with connect("a:1") as client:
            return repr(client), repr(client.admin())

    assert asyncio.run(shown()) == ("<AsyncClient of a:1>", "<AsyncAdmin of a:1>")
