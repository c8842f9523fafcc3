"""Messages that are published by reference, with real processes: order, deaths of brokers, splits, lost files."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import smq
from smq_core.errors import DataLost, ReferenceRejected
from smq_core.model.keyspace import KeyRange
from smq_storage.catalog import paths
from smq_storage.chunks.schemas import TIMESTAMP, message_schema
from smq_storage.object_store.store import Store
from support.data.message_ledger import read_back
from support.data.raw_flight import RawProducer, rows
from support.data.reference_publisher import ReferencePublisher
from support.processes.cli import smq as run_smq
from support.processes.cluster_fixtures import cluster_of_module
from support.processes.local_cluster import LocalCluster
from support.waiting import eventually

pytestmark = pytest.mark.integration

__all__ = ["cluster_of_module"]

PARTITIONS = 64


class Messages:
    """Numbered messages of each partition, and what a consumer must get."""

    def __init__(self) -> None:
        self.sent = [0] * PARTITIONS

    def table(self, rows_: int, seed: int) -> pa.Table:
        partitions = np.random.default_rng(seed).integers(0, PARTITIONS, rows_).astype(np.int32)
        values = []
        for partition in partitions.tolist():
            values.append(b"%d:%d" % (partition, self.sent[partition]))
            self.sent[partition] += 1
        schema = message_schema()
        columns = [
            pa.array(partitions),
            pa.array(np.arange(rows_)).cast(TIMESTAMP),
            pa.array([b"k"] * rows_),
            pa.array(values),
            pa.nulls(rows_, schema.field("headers").type),
        ]
        return pa.table(columns, schema=schema)

    def check(self, batches: list[smq.Batch]) -> None:
        """Every message came once, and those of a partition in order."""
        found: dict[int, list[int]] = defaultdict(list)
        for batch in batches:
            for value in batch.table.column("value").to_pylist():
                partition, number = map(int, value.split(b":"))
                found[partition].append(number)
        for partition, count in enumerate(self.sent):
            assert found[partition] == list(range(count)), f"partition {partition}"

    @property
    def total(self) -> int:
        return sum(self.sent)


@pytest.fixture
def store(cluster: LocalCluster) -> Store:
    return cluster.store.open()


@pytest.fixture
def publisher(cluster: LocalCluster, client: smq.Client, store: Store, topic: str) -> Iterator[ReferencePublisher]:
    eventually(lambda: sum(it.state == "alive" for it in client.admin().brokers()) >= 3)
    cluster.create(topic, partitions=PARTITIONS)
    publishing = ReferencePublisher(store, topic, [it.address for it in client.admin().brokers()], "bulk")
    yield publishing
    publishing.close()


def test_references_keep_their_place_among_streamed_batches(
    publisher: ReferencePublisher, client: smq.Client, topic: str
) -> None:
    (segment,) = publisher.layout.writable_segments
    upload = publisher.upload(Messages().table(1000, 1))
    whole = KeyRange(0, PARTITIONS)
    producer = RawProducer(segment.primary.address, publisher.topic, segment)
    for turn in range(3):
        producer.send(rows([b"before %d" % turn] * 10))
        producer.publish(upload.reference(whole))
    last = producer.send(rows([b"end"]))
    assert producer.wait_acked(last) == 3 * 1010
    with client.consumer(topic) as consumer:
        values = [v for batch in read_back(consumer, 3031) for v in batch.table.column("value").to_pylist()]
    expected = upload.table.column("value").to_pylist()
    wanted = [value for turn in range(3) for value in [b"before %d" % turn] * 10 + expected]
    assert values == [*wanted, b"end"]
    producer.close()


def test_a_rejected_reference_leaves_no_trace(publisher: ReferencePublisher, client: smq.Client, topic: str) -> None:
    (segment,) = publisher.layout.writable_segments
    upload = publisher.upload(Messages().table(100, 1))
    other = publisher.upload(Messages().table(100, 2))
    bad = upload.reference(KeyRange(0, PARTITIONS))
    producer = RawProducer(segment.primary.address, publisher.topic, segment)
    producer.wait_opened()
    producer.publish(replace(bad, etag=other.etag), 0)
    producer.wait_resolved(0)
    ((sequence, error),) = producer.rejected
    assert sequence == 0 and isinstance(error, ReferenceRejected) and error.field == "upload"
    assert producer.wait_acked(producer.send(rows([b"a"]), 0)) == 0
    assert producer.wait_acked(producer.publish(bad, 1)) == 1
    with client.consumer(topic) as consumer:
        assert sum(len(batch) for batch in read_back(consumer, 101)) == 101
    producer.close()


@pytest.mark.parametrize("who", ["primary", "follower"])
def test_a_broker_is_killed_with_an_unflushed_reference(
    publisher: ReferencePublisher, cluster: LocalCluster, client: smq.Client, topic: str, who: str
) -> None:
    messages = Messages()
    with client.consumer(topic) as consumer:
        for number in range(8):
            publisher.publish(publisher.upload(messages.table(2000, number)))
            if number == 3:
                (segment,) = publisher.layout.writable_segments
                cluster.kill_broker(segment.replicas[0 if who == "primary" else 1].broker)
        messages.check(read_back(consumer, messages.total))


@pytest.mark.slow
def test_a_split_while_references_are_in_flight(publisher: ReferencePublisher, client: smq.Client, topic: str) -> None:
    messages, admin, done = Messages(), client.admin(), threading.Event()
    failure: list[BaseException] = []

    def publish() -> None:
        try:
            for number in range(1000):
                publisher.publish(publisher.upload(messages.table(500, number)))
                if done.is_set():
                    return
        except BaseException as error:
            failure.append(error)
            raise

    thread = threading.Thread(target=publish, daemon=True)
    thread.start()
    try:
        for wanted in (2, 3, 4):
            before = messages.total
            eventually(lambda before=before: messages.total > before + 3000 or failure)
            segment = max((s for s in admin.segments(topic) if s.phase == "open"), key=lambda s: s.stop - s.start)
            admin.split(topic, segment.name)
            eventually(lambda wanted=wanted: sum(s.phase == "open" for s in admin.segments(topic)) == wanted)
    finally:
        done.set()
        thread.join()
    assert not failure
    with client.consumer(topic) as consumer:
        messages.check(read_back(consumer, messages.total))


def test_a_sealed_segment_is_read_with_its_uploads(
    publisher: ReferencePublisher, client: smq.Client, topic: str
) -> None:
    messages, admin = Messages(), client.admin()
    for number in range(3):
        publisher.publish(publisher.upload(messages.table(3000, number)))
    admin.roll(topic, publisher.layout.writable_segments[0].name)
    eventually(lambda: any(s.phase == "sealed" for s in admin.segments(topic, all=True)))
    with client.consumer(topic) as consumer:
        messages.check(read_back(consumer, messages.total))


@pytest.mark.slow
def test_a_verification_names_a_deleted_upload(
    publisher: ReferencePublisher, cluster: LocalCluster, client: smq.Client, store: Store, topic: str
) -> None:
    upload = publisher.upload(Messages().table(300, 1))
    publisher.publish(upload)
    (segment,) = publisher.layout.writable_segments
    client.admin().roll(topic, segment.name)
    eventually(lambda: any(s.phase == "sealed" for s in client.admin().segments(topic, all=True)))
    filer = ["--filer-url", cluster.store.url, "--filer-endpoint", cluster.store.endpoint or ""]
    whole = run_smq("topic", "verify", topic, "--rows", leader=cluster.address)
    assert (whole.code, whole.lines[-1]) == (0, "0 problems in 2 segments, 1 file, 300 messages"), whole
    path = paths.uploaded_file(publisher.topic.uid, upload.name)
    store.delete(path)
    damaged = run_smq("topic", "verify", topic, *filer)
    assert damaged.code == 1
    assert damaged.lines[0] == f"{path}: is missing; {segment.name} has the messages 0 to 299 there"
    assert damaged.lines[1:] == ["1 problem in 2 segments, 1 file, 300 messages"]


def test_a_deleted_upload_is_reported_with_its_name(
    publisher: ReferencePublisher, client: smq.Client, store: Store, topic: str
) -> None:
    first, second = (publisher.upload(Messages().table(300, number)) for number in range(2))
    publisher.publish(first)
    publisher.publish(second)
    store.delete(paths.uploaded_file(publisher.topic.uid, first.name))
    with client.consumer(topic) as consumer, pytest.raises(DataLost) as raised:
        read_back(consumer, 600)
    assert (raised.value.start, raised.value.stop) == (0, 300)
    assert raised.value.path.endswith(first.name) and first.name in raised.value.message
    with client.consumer(topic, on_loss="skip") as consumer:
        batches = read_back(consumer, 300)
    assert batches[0].first_offset == 300 and sum(map(len, batches)) == 300
