"""All replicas of a segment die at the same moment: what only they held is reported, exactly, and work goes on."""

from __future__ import annotations

import pytest

import smq
from support.ledger import read_back
from support.local_cluster import LocalCluster
from support.waiting import eventually

pytestmark = pytest.mark.integration


def values(batches: list[smq.Batch]) -> list[bytes]:
    return [v for b in batches for v in b.table.column("value").to_pylist()]


def test_a_loss_is_told_once_with_its_offsets_and_reading_goes_on(own_cluster: LocalCluster) -> None:
    own_cluster.create("flights", flush={"bytes": "64Mi", "interval": "1h"})
    with own_cluster.connect() as client, client.producer("flights") as producer:
        for number in range(100):
            producer.send(b"%d" % number)
        producer.flush()
        had = client.consumer("flights")
        assert len(values(read_back(had, 100))) == 100
        (segment,) = client.admin().segments("flights")
        # The leader knows up to where messages were durable from a report of the primary.
        eventually(lambda: any(s.watermark == 100 for b in client.admin().brokers() for s in b.segments), 10)
        for broker in segment.brokers:
            own_cluster.kill_broker(broker)
        producer.send(b"after").result(30)
        with pytest.raises(smq.DataLost) as told:
            had.poll(30)
        assert (told.value.segment, told.value.start, told.value.stop) == (segment.name, 0, 100)
        assert values(read_back(had, 1)) == [b"after"]
        with client.consumer("flights", start="earliest") as late:
            with pytest.raises(smq.DataLost) as told:
                late.poll(30)
            assert (told.value.start, told.value.stop) == (0, 100)
            assert values(read_back(late, 1)) == [b"after"]
        with client.consumer("flights", on_loss="skip") as careless:
            assert values(read_back(careless, 1)) == [b"after"]
        (lost,) = [s.lost for s in client.admin().segments("flights", all=True) if s.lost]
        assert lost == (0, 100)


def test_a_position_in_a_segment_that_is_gone_is_a_loss(cluster: LocalCluster, client: smq.Client, topic: str) -> None:
    cluster.create(topic)
    with client.producer(topic) as producer:
        producer.send(b"x").result(20)
    with client.consumer(topic, start={f"{topic}-0-64-77": 5}) as consumer:
        with pytest.raises(smq.DataLost) as told:
            consumer.poll(10)
        assert (told.value.start, told.value.stop) == (5, None)
        assert values(read_back(consumer, 1)) == [b"x"]
