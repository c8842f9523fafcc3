"""Invalid input is refused at once with the expected form. A program that cannot deliver gets an error in time."""

from __future__ import annotations

import contextlib
import os
import signal
import time

import pyarrow as pa
import pytest

import smq
from support.processes.local_cluster import LocalCluster
from support.waiting import HANG_GUARD, eventually

pytestmark = pytest.mark.integration


def test_an_unknown_topic(client: smq.Client) -> None:
    with pytest.raises(smq.UnknownTopic, match="nowhere"):
        client.producer("nowhere")
    with pytest.raises(smq.UnknownTopic, match="nowhere"):
        client.consumer("nowhere")


def test_no_leader_at_the_address() -> None:
    with smq.connect("127.0.0.1:1", timeout=0.5) as client, pytest.raises(smq.Unavailable, match=r"127\.0\.0\.1:1"):
        client.admin().topics()


def test_what_a_topic_without_a_schema_does_not_take(cluster: LocalCluster, client: smq.Client, topic: str) -> None:
    cluster.create(topic)
    with client.producer(topic) as producer:
        with pytest.raises(smq.InvalidRequest, match="encode"):
            producer.send("text")  # type: ignore[arg-type]
        with pytest.raises(smq.InvalidRequest, match="encode"):
            producer.send(b"x", key="text")  # type: ignore[arg-type]
        with pytest.raises(smq.MessageTooLarge, match="limit"):
            producer.send(b"x", key=bytes(17 << 20))
        with pytest.raises(smq.MessageTooLarge, match="limit"):
            producer.write(pa.table({"value": [bytes(17 << 20)]}))
        with pytest.raises(smq.SchemaMismatch, match="dep_delay") as refused:
            producer.write(pa.table({"value": [b"x"], "dep_delay": [1.0]}))
        assert "value binary" in str(refused.value.expected)
        with pytest.raises(smq.InvalidRequest, match="tailnum"):
            producer.write(pa.table({"value": [b"x"]}), key="tailnum")
        with pytest.raises(smq.InvalidRequest):
            producer.write({"value": [b"x"]})  # type: ignore[arg-type]
        assert producer.send(b"fine").result().offset == 0, "nothing of it was sent"


def test_what_a_topic_with_a_schema_does_not_take(cluster: LocalCluster, client: smq.Client, topic: str) -> None:
    columns = [{"name": "tailnum", "type": "string"}, {"name": "delay", "type": "float64", "nullable": True}]
    cluster.create(topic, key="tailnum", schema=columns)
    with client.producer(topic) as producer:
        for wrong, says in (
            ({"delay": 1.0}, "column tailnum: it may not be null"),
            ({"tailnum": "N1", "speed": 3}, "no column speed"),
            ({"tailnum": 5}, "column tailnum: 5 "),
            (b"bytes", "not bytes"),
        ):
            with pytest.raises(smq.SchemaMismatch, match=says) as refused:
                producer.send(wrong)  # type: ignore[arg-type]
            assert "tailnum string not null" in str(refused.value.expected)
        with pytest.raises(smq.SchemaMismatch, match="tailnum, row 1: it may not be null"):
            producer.write(pa.table({"tailnum": ["N1", None]}))
        with pytest.raises(smq.SchemaMismatch, match="delay"):
            producer.write(pa.table({"tailnum": ["N1"], "delay": ["late"]}))
        with pytest.raises(smq.InvalidRequest, match="tailnum"):
            producer.write(pa.table({"delay": [1.0]}))
        with pytest.raises(smq.InvalidRequest, match="tailnum"):
            producer.write(pa.table({"tailnum": ["N1"]}), key="delay")


@pytest.mark.slow
def test_messages_that_no_broker_accepts_time_out(own_cluster: LocalCluster) -> None:
    """The brokers are paused: the sender blocks at its budget, and gets an error after its timeout."""
    own_cluster.create("flights")
    with own_cluster.connect() as client:
        producer = client.producer("flights", max_in_flight=100_000, batch_bytes=20_000, timeout=8.0)
        producer.send(b"x").result()
        pids = list(own_cluster.pids().values())
        own_cluster.kill_leader()
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            began = time.monotonic()
            deliveries = []
            with pytest.raises(smq.Overloaded, match="max_in_flight"):
                for _ in range(10_000):
                    deliveries.append(producer.send(bytes(1000)))
            assert time.monotonic() - began > 7.5
            assert len(deliveries) < 200
            with pytest.raises(smq.DeliveryTimeout):
                deliveries[0].result()
            with pytest.raises(smq.DeliveryTimeout):
                producer.close()
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)


def test_a_topic_that_is_deleted_ends_those_who_use_it(cluster: LocalCluster, client: smq.Client, topic: str) -> None:
    cluster.create(topic)
    producer, consumer = client.producer(topic), client.consumer(topic)
    producer.send(b"x").result()
    assert consumer.poll(HANG_GUARD) is not None
    client.admin().delete(topic)
    with pytest.raises(smq.UnknownTopic):
        consumer.poll(HANG_GUARD)
    with pytest.raises(smq.UnknownTopic):
        producer.send(b"y").result()
    consumer.close()
    with contextlib.suppress(smq.UnknownTopic):
        producer.close()


def test_a_closed_producer_and_consumer(cluster: LocalCluster, client: smq.Client, topic: str) -> None:
    cluster.create(topic)
    producer, consumer = client.producer(topic), client.consumer(topic)
    producer.close()
    consumer.close()
    producer.close()
    consumer.close()
    with pytest.raises(smq.InvalidRequest, match="closed"):
        producer.send(b"x")
    with pytest.raises(smq.InvalidRequest, match="closed"):
        producer.write(pa.table({"value": [b"x"]}))
    with pytest.raises(smq.InvalidRequest, match="closed"):
        consumer.poll(0)
    with pytest.raises(smq.InvalidRequest, match="group"):
        client.consumer(topic).commit()


def test_an_unreachable_filer_is_reported_while_it_is_retried(
    cluster: LocalCluster, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.create(topic)
    with cluster.connect() as client:
        with client.producer(topic) as producer:
            producer.send(b"old")
        admin = client.admin()
        [rolled] = admin.segments(topic)
        admin.roll(topic, rolled.name)
        eventually(
            lambda: rolled.name not in [s.name for s in admin.segments(topic)], what="no broker has its messages"
        )
    nowhere = smq.connect(cluster.address, filer_url=cluster.store.url, filer_endpoint="http://127.0.0.1:1")
    with nowhere as client, client.consumer(topic) as consumer:
        came = []

        def warned() -> bool:
            came.append(consumer.poll(0.1))
            return any("reads from the filer have failed" in r.getMessage() for r in caplog.records if r.levelno >= 30)

        eventually(warned, what="a warning says what is in the way")
        assert not any(came)
