"""Consumers of one client that share the stream of a tail, while the segment's brokers are killed and it is split."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

import smq
from support.processes.local_cluster import LocalCluster
from support.waiting import HANG_GUARD, eventually

pytestmark = pytest.mark.integration

CONSUMERS = 4
KEYS = 8


def read(consumers: list[smq.Consumer], seen: list[list[bytes]], count: int) -> None:
    """Until each has seen that number of messages."""
    for consumer, found in zip(consumers, seen, strict=True):
        while len(found) < count:
            batch = consumer.poll(HANG_GUARD)
            assert batch is not None
            found.extend(batch.table.column("value").to_pylist())


def test_each_consumer_gets_each_message_once_in_the_order_of_its_key(own_cluster: LocalCluster) -> None:
    own_cluster.create("events", segments={"min": 1, "max": 8})
    sent = 0
    with own_cluster.connect() as client, ExitStack() as ends:
        producer = ends.enter_context(client.producer("events"))
        admin = client.admin()
        consumers = [ends.enter_context(client.consumer("events")) for _ in range(CONSUMERS)]
        seen: list[list[bytes]] = [[] for _ in consumers]

        def send_and_read(count: int = 200) -> None:
            nonlocal sent
            for number in range(sent, sent + count):
                producer.send(b"%d" % number, key=b"%d" % (number % KEYS))
            sent += count
            read(consumers, seen, sent)

        def share() -> bool:
            """Sends until each tail is read by one stream."""
            send_and_read(1)
            tails = list(client._consumer_runtime.shared_tails._published.values())
            return bool(tails) and all(tail.readers == CONSUMERS for tail in tails)

        for change in ("split", "kill", "kill"):
            eventually(share, "one stream for all consumers")
            send_and_read()
            segment = eventually(lambda: next((it for it in admin.segments("events") if it.phase == "open"), None))
            assert segment is not None
            if change == "kill":
                own_cluster.kill_broker(segment.brokers[0])
            else:
                admin.split("events", segment.name)
            send_and_read()
    for found in seen:
        numbers = [int(value) for value in found]
        assert sorted(numbers) == list(range(sent)), "each message once"
        for key in range(KEYS):
            of_key = [number for number in numbers if number % KEYS == key]
            assert of_key == sorted(of_key), "in the order of its key"
