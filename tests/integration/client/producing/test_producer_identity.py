"""Producers with their own ids: who may write, across restarts, splits and merges."""

from __future__ import annotations

import pytest

import smq
from smq_core.model.keyspace import partition_of
from support.processes.local_cluster import LocalCluster

pytestmark = pytest.mark.integration

SECONDS = 120


def all_values(client: smq.Client, topic: str, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    with client.consumer(topic) as consumer:
        while len(found) < count:
            batch = consumer.poll(SECONDS)
            assert batch is not None, f"{len(found)} of {count} messages"
            found += batch.table["value"].to_pylist()
    return found


def test_a_producer_that_starts_again_takes_the_next_epoch(
    cluster: LocalCluster, client: smq.Client, topic: str
) -> None:
    cluster.create(topic)
    for epoch in range(3):
        with client.producer(topic, producer_id="job") as producer:
            assert producer.epoch == epoch
            producer.send(b"%d" % epoch).result(SECONDS)
    assert all_values(client, topic, 3) == [b"0", b"1", b"2"]


def test_a_newer_process_fences_the_older_one(cluster: LocalCluster, client: smq.Client, topic: str) -> None:
    cluster.create(topic)
    old = client.producer(topic, producer_id="job")
    old.send(b"old").result(SECONDS)
    with client.producer(topic, producer_id="job") as new:
        new.send(b"new").result(SECONDS)
        with pytest.raises(smq.ProducerFenced, match="epoch 1"):
            old.send(b"zombie").result(SECONDS)
        with pytest.raises(smq.ProducerFenced):
            old.send(b"zombie")
    old.close()
    assert all_values(client, topic, 2) == [b"old", b"new"]


@pytest.mark.parametrize("epoch", [3, 2])
def test_an_epoch_that_another_process_took_is_refused(
    cluster: LocalCluster, client: smq.Client, topic: str, epoch: int
) -> None:
    cluster.create(topic)
    with client.producer(topic, producer_id="job", epoch=3) as first:
        first.send(b"one").result(SECONDS)
        with pytest.raises(smq.ProducerFenced, match="without epoch="):
            client.producer(topic, producer_id="job", epoch=epoch)
        first.send(b"two").result(SECONDS)
    assert all_values(client, topic, 2) == [b"one", b"two"]


def test_an_epoch_without_an_id_is_refused(cluster: LocalCluster, client: smq.Client, topic: str) -> None:
    cluster.create(topic)
    with pytest.raises(smq.InvalidRequest, match="producer_id"):
        client.producer(topic, epoch=1)


def test_the_older_of_two_processes_is_fenced_when_their_segments_merge(
    cluster: LocalCluster, client: smq.Client, topic: str
) -> None:
    """Each writes to its own segment. Both acked messages are kept, and only the newer process continues."""
    cluster.create(topic, segments={"min": 2, "max": 4}, scaling={"mergeAfter": "1h"})
    low, high = keys_of_both_halves()
    older = client.producer(topic, producer_id="job")
    newer = client.producer(topic, producer_id="job")
    for n in range(20):
        older.send(b"older-%d" % n, key=low).result(SECONDS)
        newer.send(b"newer-%d" % n, key=high).result(SECONDS)
    admin = client.admin()
    admin.merge(topic, [s.name for s in admin.segments(topic)])
    newer.send(b"after", key=low).result(SECONDS)
    with pytest.raises(smq.ProducerFenced):
        older.send(b"zombie", key=low).result(SECONDS)
    older.close()
    newer.close()
    found = all_values(client, topic, 41)
    assert sorted(found) == sorted(
        [b"%s-%d" % (who, n) for who in (b"older", b"newer") for n in range(20)] + [b"after"]
    )


def test_an_epoch_stays_fenced_when_its_segment_is_sealed(
    cluster: LocalCluster, client: smq.Client, topic: str
) -> None:
    """The older process had not written before the seal, so the successor knows it from its predecessor only."""
    cluster.create(topic)
    older = client.producer(topic, producer_id="job")
    with client.producer(topic, producer_id="job") as newer:
        newer.send(b"newer").result(SECONDS)
    admin = client.admin()
    admin.split(topic, admin.segments(topic)[0].name)
    with pytest.raises(smq.ProducerFenced):
        for n in range(64):
            older.send(b"older", key=b"%d" % n).result(SECONDS)
    older.close()


def keys_of_both_halves() -> tuple[bytes, bytes]:
    """A key in the first half of 64 partitions and one in the second."""
    keys = [b"k%d" % n for n in range(64)]
    halves = [partition_of(key, 64) // 32 for key in keys]
    return keys[halves.index(0)], keys[halves.index(1)]
