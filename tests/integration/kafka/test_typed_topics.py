"""Kafka clients write and read topics with a schema as JSON."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import chain, islice

import confluent_kafka
import pytest

import smq
from integration.kafka.clients import PARTITIONS, check_dense, producer_of, read_all
from support.processes.local_cluster import LocalCluster
from support.waiting import HANG_GUARD, eventually

pytestmark = pytest.mark.integration

SCHEMA = [{"name": "id", "type": "int64"}, {"name": "at", "type": "timestamp[us, UTC]", "nullable": True}]
AT = datetime(2024, 5, 1, 12, tzinfo=UTC)


def json_of(number: int) -> bytes:
    return b'{"id": %d, "at": "2024-05-01T12:00:00.000000Z"}' % number


@pytest.mark.parametrize("from_files", [False, True], ids=["tail", "files"])
def test_rows_go_both_ways(cluster: LocalCluster, client: smq.Client, topic: str, from_files: bool) -> None:
    flush = {"interval": "200ms" if from_files else "1h"}
    cluster.create(
        topic, partitioner="Kafka", partitions=PARTITIONS, segments={"max": 8}, key="id", schema=SCHEMA, flush=flush
    )
    errors: list[confluent_kafka.KafkaError] = []
    kafka = producer_of(cluster)
    for number in range(200):
        key = b"%d" % number if number % 2 else None
        kafka.produce(topic, json_of(number), key, on_delivery=lambda error, _: error and errors.append(error))
    assert kafka.flush(HANG_GUARD) == 0 and errors == []
    with client.producer(topic) as native:
        native.send_many([{"id": number, "at": AT} for number in range(200, 300)])
        native.flush(HANG_GUARD)
    if from_files:
        eventually(lambda: sum(it.rows for it in client.files(topic)) == 300)

    with client.consumer(topic, start="earliest") as consumer:
        rows = list(islice(chain.from_iterable(consumer), 300))
    assert sorted((it.value["id"], it.value["at"]) for it in rows) == [(number, AT) for number in range(300)]

    found = read_all(cluster, topic, 300)
    check_dense(found)
    messages = sorted(chain.from_iterable(found.values()), key=lambda it: int(it.key()))
    assert [(it.key(), it.value()) for it in messages] == [(b"%d" % number, json_of(number)) for number in range(300)]


def test_what_is_no_row_is_refused(cluster: LocalCluster, topic: str) -> None:
    cluster.create(topic, partitioner="Kafka", partitions=PARTITIONS, segments={"max": 8}, schema=SCHEMA)
    errors: list[confluent_kafka.KafkaError] = []
    producer = producer_of(cluster, **{"enable.idempotence": False})
    producer.produce(topic, b'{"id": "seven"}', on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(HANG_GUARD) == 0
    assert [it.code() for it in errors] == [confluent_kafka.KafkaError.INVALID_RECORD]
