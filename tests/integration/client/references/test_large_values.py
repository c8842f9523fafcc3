"""Large values with real processes: exact bytes in order, splits, a killed broker, retention, a deleted object."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator

import pytest

import smq
from smq_core.model.entities import Topic
from smq_storage.catalog import paths, sealed_index
from smq_storage.chunks.chain import ChunkChain
from smq_storage.object_store.store import Store
from smq_storage.process.seaweedfs import SeaweedProcess
from smq_storage.tables.file_lists import find_file_list
from support.data.message_ledger import read_back
from support.data.sealed_topic import read_stored_topic
from support.processes.local_cluster import LocalCluster, manifest
from support.waiting import HANG_GUARD, eventually

pytestmark = pytest.mark.integration

# Uploads that no message names stay for days, as by default. So what is deleted was deleted with its segment.
CLEANUP = ("--cleanup-interval", "100ms", "--removed-files-grace", "1s", "--broker-memory", "4Gi")

INLINE = 64 << 10


@pytest.fixture(scope="module")
def cluster(seaweed: SeaweedProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with LocalCluster(folder, seaweed.settings(f"large-{folder.name}"), arguments=CLEANUP) as running:
        yield running


@pytest.fixture
def store(cluster: LocalCluster) -> Store:
    return cluster.store.open()


def objects(store: Store, topic: Topic) -> set[str]:
    """The names of the large values in the filer."""
    return {paths.upload_name(o.path) for o in store.list(paths.large_values_folder(topic.uid))}


def named(store: Store, topic: Topic, segments: list[str]) -> list[str]:
    """What the chunks of these segments name."""
    chains = [ChunkChain(store, topic.name, topic.uid, segment) for segment in segments]
    return [name for chain in chains for info in chain.walk() for name in info.large_values]


def roll(client: smq.Client, topic: str) -> str:
    """Rolls the only segment, and waits until it is sealed. Returns its name."""
    (segment,) = client.admin().segments(topic)
    client.admin().roll(topic, segment.name)

    def is_sealed() -> bool:
        (living, *others) = client.admin().segments(topic)
        return not others and living.phase == "open" and living.name != segment.name

    eventually(is_sealed, what="the segment was rolled")
    return segment.name


def values(batches: list[smq.Batch]) -> list[bytes]:
    return [value for batch in batches for value in batch.table.column("value").to_pylist()]


@pytest.mark.slow
def test_values_of_20_mb_among_small_ones_come_back_in_order(
    cluster: LocalCluster, client: smq.Client, topic: str, store: Store
) -> None:
    cluster.create(topic)
    dice = random.Random(1)
    sent = [dice.randbytes(20_000_000) if n % 5 == 2 else b"small %d" % n for n in range(10)]
    with client.producer(topic) as producer:
        deliveries = [producer.send(value, key=b"k") for value in sent]
        assert [it.result(HANG_GUARD).offset for it in deliveries] == list(range(10))
    with client.consumer(topic) as consumer:
        assert values(read_back(consumer, 10)) == sent, "from the tail"
    sealed = roll(client, topic)
    made = read_stored_topic(store, f"default/{topic}")
    assert sorted(named(store, made, [sealed])) == sorted(objects(store, made)) and len(objects(store, made)) == 2
    with client.consumer(topic) as consumer:
        assert values(read_back(consumer, 10)) == sent, "from the filer"
    with client.consumer(topic, large_values="lazy") as consumer:
        batches = read_back(consumer, 10)
    assert sum(batch.table.nbytes for batch in batches) < 100_000
    assert [batch.value(row) for batch in batches for row in range(len(batch))] == sent


def test_order_and_names_stay_through_a_split_and_a_killed_broker(
    cluster: LocalCluster, client: smq.Client, topic: str, store: Store
) -> None:
    cluster.create(topic, flush={"interval": "100ms"})
    sent: dict[bytes, list[bytes]] = defaultdict(list)
    large = 0
    with client.producer(topic, max_inline_bytes=INLINE) as producer:
        for number in range(240):
            key = b"key-%d" % (number % 8)
            is_large = number % 3 == 0
            large += is_large
            value = b"%d " % number + b"x" * (INLINE if is_large else 10)
            sent[key].append(value)
            producer.send(value, key=key)
            if number == 80:
                (segment,) = client.admin().segments(topic)
                client.admin().split(topic, segment.name, at=[32])
            if number == 160:
                cluster.kill_broker(client.admin().segments(topic)[0].brokers[0])
        producer.flush(HANG_GUARD)
    got: dict[bytes, list[bytes]] = defaultdict(list)
    with client.consumer(topic) as consumer:
        for batch in read_back(consumer, 240):
            for key, value in zip(*(batch.table.column(name).to_pylist() for name in ("key", "value")), strict=True):
                got[key].append(value)
    assert got == sent
    made = read_stored_topic(store, f"default/{topic}")

    def all_are_named_once() -> bool:
        names = named(store, made, [s.name for s in client.admin().segments(topic, all=True)])
        return len(names) == len(set(names)) == large and set(names) == objects(store, made)

    eventually(all_are_named_once, what="the tails are flushed")


def test_retention_deletes_a_large_value_with_its_segment(
    cluster: LocalCluster, client: smq.Client, topic: str, store: Store
) -> None:
    cluster.create(topic)
    with client.producer(topic, max_inline_bytes=INLINE) as producer:
        producer.send(b"x" * INLINE).result(HANG_GUARD)
        sealed = roll(client, topic)
        producer.send(b"y" * INLINE).result(HANG_GUARD)
    made = read_stored_topic(store, f"default/{topic}")
    (old,) = named(store, made, [sealed])
    assert len(objects(store, made)) == 2

    def in_file_list() -> bool:
        (entry,) = sealed_index.read(store, made.name, made.uid)
        found = find_file_list(store, made.name, made.uid, entry.file_list)
        return found is not None and [name for file in found.files for name in file.large_values] == [old]

    eventually(in_file_list, what="the file list names it")
    client.admin().apply(manifest(topic, retention={"age": "1s"}))
    eventually(lambda: old not in objects(store, made), what="it is deleted with its segment")
    assert len(objects(store, made)) == 1
    with client.consumer(topic) as consumer:
        assert values(read_back(consumer, 1)) == [b"y" * INLINE]


def test_an_object_that_somebody_deletes_is_a_loss_with_its_name(
    cluster: LocalCluster, client: smq.Client, topic: str, store: Store
) -> None:
    cluster.create(topic)
    with client.producer(topic, max_inline_bytes=INLINE) as producer:
        for value in (b"before", b"x" * INLINE, b"after"):
            producer.send(value, key=b"k").result(HANG_GUARD)
    made = read_stored_topic(store, f"default/{topic}")
    (name,) = objects(store, made)
    store.delete(paths.large_value(made.uid, name))
    with client.consumer(topic) as consumer:
        before = consumer.poll(HANG_GUARD)
        with pytest.raises(smq.DataLost, match=name) as lost:
            consumer.poll(HANG_GUARD)
        assert (lost.value.start, lost.value.stop) == (1, 2)
        after = consumer.poll(HANG_GUARD)
        assert before is not None and after is not None and values([before, after]) == [b"before", b"after"]
    with client.consumer(topic, large_values="lazy") as consumer:
        batches = read_back(consumer, 3)
    by_offset = {batch.first_offset + row: (batch, row) for batch in batches for row in range(len(batch))}
    with pytest.raises(smq.DataLost, match=name):
        by_offset[1][0].value(by_offset[1][1])
    assert by_offset[2][0].value(by_offset[2][1]) == b"after"
