"""All replicas of a segment are killed at the same moment: the exact loss is reported, and the topic continues."""

from __future__ import annotations

import pytest

import smq
from support.data.message_ledger import read_back
from support.processes.local_cluster import LocalCluster
from support.waiting import HANG_GUARD, eventually

pytestmark = pytest.mark.integration


def values(batches: list[smq.Batch]) -> list[bytes]:
    return [v for b in batches for v in b.table.column("value").to_pylist()]


def test_a_loss_is_reported_once_with_its_offsets_and_reading_continues(own_cluster: LocalCluster) -> None:
    own_cluster.create("flights", flush={"bytes": "64Mi", "interval": "1h"})
    with own_cluster.connect() as client, client.producer("flights") as producer:
        for number in range(100):
            producer.send(b"%d" % number)
        producer.flush()
        had = client.consumer("flights")
        assert len(values(read_back(had, 100))) == 100
        (segment,) = client.admin().segments("flights")
        # A report of the primary gives the leader the offset below which messages were durable.
        eventually(lambda: any(s.watermark == 100 for b in client.admin().brokers() for s in b.segments))
        for broker in segment.brokers:
            own_cluster.kill_broker(broker)
        producer.send(b"after").result()
        with pytest.raises(smq.DataLost) as reported:
            had.poll(HANG_GUARD)
        assert (reported.value.segment, reported.value.start, reported.value.stop) == (segment.name, 0, 100)
        assert values(read_back(had, 1)) == [b"after"]
        with client.consumer("flights", start="earliest") as late:
            with pytest.raises(smq.DataLost) as reported:
                late.poll(HANG_GUARD)
            assert (reported.value.start, reported.value.stop) == (0, 100)
            assert values(read_back(late, 1)) == [b"after"]
        with client.consumer("flights", on_loss="skip") as careless:
            assert values(read_back(careless, 1)) == [b"after"]
        (lost,) = [s.lost for s in client.admin().segments("flights", all=True) if s.lost]
        assert lost == (0, 100)


def test_a_position_in_a_segment_that_is_gone_is_a_loss(cluster: LocalCluster, client: smq.Client, topic: str) -> None:
    cluster.create(topic)
    with client.producer(topic) as producer:
        producer.send(b"x").result()
    with client.consumer(topic, start={f"{topic}-0-64-77": 5}) as consumer:
        with pytest.raises(smq.DataLost) as reported:
            consumer.poll(HANG_GUARD)
        assert (reported.value.start, reported.value.stop) == (5, None)
        assert values(read_back(consumer, 1)) == [b"x"]
