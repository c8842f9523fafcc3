"""The topic's schema changes while programs publish and read: no message is lost, duplicated or reordered."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import defaultdict
from typing import Any

import pyarrow as pa
import pytest

import smq
from support.processes.local_cluster import LocalCluster
from support.waiting import HANG_GUARD, eventually

pytestmark = pytest.mark.integration

KEYS = 16
COLUMNS = [
    {"name": "key", "type": "int64"},
    {"name": "number", "type": "int32"},
    {"name": "note", "type": "string", "nullable": True},
]


class TypedPublisher:
    """Publishes numbered rows in the background until it is stopped. ``fields`` are further columns of each row."""

    def __init__(self, producer: smq.Producer) -> None:
        self.fields: dict[str, Any] = {}
        self.sent = [0] * KEYS
        self.deliveries: list[smq.Delivery[smq.Receipt]] = []
        self._acked = itertools.count()
        self.acked = 0
        self._producer = producer
        self._stop = threading.Event()
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.wait(0.001):
                for key in range(KEYS):
                    row = {"key": key, "number": self.sent[key], **self.fields}
                    self.deliveries.append(self._producer.send(row))
                    self.sent[key] += 1
                self.deliveries[-1].add_done_callback(self._count)
        except BaseException as error:
            self.failure = error

    def _count(self, _: object) -> None:
        self.acked = next(self._acked) + 1

    def wait_for_acks(self, count: int = 30) -> None:
        """Waits until that many more rounds were acked."""
        before = self.acked
        eventually(lambda: self.acked > before + count or self.failure is not None, what="acks")
        if self.failure is not None:
            raise self.failure

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure
        self._producer.flush(HANG_GUARD)
        for delivery in self.deliveries:
            delivery.result(HANG_GUARD)


def busy(client: smq.Client, topic: str) -> smq.Producer:
    """A producer that always has several small batches on the way."""
    return client.producer(topic, linger=0.0, batch_bytes=2_000, max_in_flight=30_000)


def create(cluster: LocalCluster, topic: str, segments: int = 4) -> None:
    cluster.create(topic, key="key", schema=COLUMNS, segments={"min": segments, "max": 16})
    with cluster.connect() as client:
        eventually(lambda: len(opened(client, topic, 0)) >= segments, what="the segments")


def opened(client: smq.Client, topic: str, version: int) -> list[smq.SegmentInfo]:
    return [s for s in client.admin().topic(topic).segments if s.phase == "open" and s.schema_version == version]


def read(consumer: smq.Consumer, total: int) -> list[pa.Table]:
    """Everything up to ``total`` messages, and what comes in a moment after them."""
    tables: list[pa.Table] = []
    rows = 0
    while rows < total:
        batch = consumer.poll(HANG_GUARD)
        assert batch is not None, f"{rows} of {total} messages came"
        tables.append(batch.table)
        rows += len(batch)
    assert consumer.poll(0.3) is None
    return tables


def check(tables: list[pa.Table], sent: list[int]) -> None:
    """Every number of every key came once, in order."""
    found: dict[int, list[int]] = defaultdict(list)
    for table in tables:
        for key, number in zip(table["key"].to_pylist(), table["number"].to_pylist(), strict=True):
            found[key].append(number)
    for key, count in enumerate(sent):
        assert sorted(found[key]) == list(range(count)), f"key {key}: lost or duplicated"
        assert found[key] == list(range(count)), f"key {key} is out of order"


@pytest.mark.slow
def test_columns_are_added_widened_and_dropped_while_publishing(
    cluster: LocalCluster, client: smq.Client, topic: str
) -> None:
    create(cluster, topic)
    admin = client.admin()
    with busy(client, topic) as producer, client.consumer(topic) as running:
        publishing = TypedPublisher(producer)
        publishing.wait_for_acks()
        admin.alter_topic(topic, add_columns={"gate": "uint8"})
        publishing.wait_for_acks()
        publishing.fields = {"gate": 7}
        eventually(lambda: len(opened(client, topic, 1)) >= 4, what="segments with the column")
        publishing.wait_for_acks()
        admin.alter_topic(topic, widen_columns={"number": "int64"}, make_nullable=["number"])
        publishing.wait_for_acks()
        admin.alter_topic(topic, drop_columns=["note"])  # some segments may not have version 2 yet
        eventually(lambda: len(opened(client, topic, 3)) >= 4, what="segments without the dropped column")
        publishing.wait_for_acks()
        publishing.stop()
        check(read(running, sum(publishing.sent)), publishing.sent)
    with client.consumer(topic) as late:
        newest = read(late, sum(publishing.sent))
    check(newest, publishing.sent)
    for table in newest:
        assert table.column_names[3:-1] == ["key", "number", "gate"]
        assert table.schema.field("number").type == pa.int64()
    gates = {gate for table in newest for gate in table["gate"].to_pylist()}
    assert gates == {None, 7}
    with client.consumer(topic, schema="own") as own:
        written = read(own, sum(publishing.sent))
    check(written, publishing.sent)
    assert {tuple(t.column_names[3:-1]) for t in written} == {
        ("key", "number", "note"),
        ("key", "number", "note", "gate"),
        ("key", "number", "gate"),
    }
    assert {t.schema.field("number").type for t in written} == {pa.int32(), pa.int64()}


def test_a_producer_with_values_in_a_dropped_column_stops(
    cluster: LocalCluster, client: smq.Client, topic: str
) -> None:
    """Its messages wait in the client, because the segment accepts none while the primary is being replaced."""
    create(cluster, topic, segments=1)
    with busy(client, topic) as producer:
        publishing = TypedPublisher(producer)
        publishing.fields = {"note": "a"}
        publishing.wait_for_acks()
        client.admin().alter_topic(topic, drop_columns=["note"])
        eventually(lambda: publishing.failure is not None, what="the end of the producer")
        assert isinstance(publishing.failure, smq.SchemaMismatch)
        publishing._thread.join()
        errors = [e for d in publishing.deliveries if (e := d.exception(HANG_GUARD)) is not None]
        stored = [d for d in publishing.deliveries if d.exception(HANG_GUARD) is None]
        assert all(isinstance(e, smq.SchemaMismatch) for e in errors)
        assert stored == publishing.deliveries[: len(stored)], "nothing overtakes what was refused"
        for error in errors:
            assert isinstance(error, smq.SchemaMismatch)
            assert error.difference == ("column 'note' (string, nullable) is gone",)
        producer.close()  # raises nothing: every delivery has given its error
    with client.consumer(topic) as consumer:
        assert sum(t.num_rows for t in read(consumer, len(stored))) == len(stored)


@pytest.mark.slow
def test_references_are_published_or_refused_whole_while_the_schema_changes(
    cluster: LocalCluster, client: smq.Client, topic: str
) -> None:
    """An upload has the columns that it was written with. The program writes again what a newer segment refuses."""
    create(cluster, topic)
    changing = threading.Thread(target=_change_columns, args=(client, topic), daemon=True)
    written: list[tuple[int, range, smq.Delivery[Any]]] = []
    sent = [0] * KEYS
    with client.producer(topic, timeout=HANG_GUARD) as producer:
        changing.start()
        while changing.is_alive():
            for key in range(4):
                numbers = range(sent[key], sent[key] + 20)
                table = pa.table({"key": [key] * len(numbers), "number": pa.array(numbers, pa.int32())})
                written.append((key, numbers, producer.write(table, by_reference=True)))
                streamed = range(numbers.stop, numbers.stop + 1)
                row = {"key": key, "number": streamed.start}
                written.append((key, streamed, producer.send(row)))
                sent[key] = streamed.stop
        errors = [delivery.exception(HANG_GUARD) for _, _, delivery in written]
        with contextlib.suppress(smq.ReferenceRejected):  # it raises the first one
            producer.flush(HANG_GUARD)
    accepted: dict[int, list[int]] = defaultdict(list)
    for (key, numbers, _), error in zip(written, errors, strict=True):
        if error is None:
            accepted[key] += numbers
        else:
            assert isinstance(error, smq.ReferenceRejected) and error.field == "schema_version", error
    with client.consumer(topic) as consumer:
        tables = read(consumer, sum(map(len, accepted.values())))
    found: dict[int, list[int]] = defaultdict(list)
    for table in tables:
        for key, number in zip(table["key"].to_pylist(), table["number"].to_pylist(), strict=True):
            found[key].append(number)
    assert found == accepted


def _change_columns(client: smq.Client, topic: str) -> None:
    changes: list[dict[str, Any]] = [
        {"add_columns": {"gate": "uint8"}},
        {"widen_columns": {"number": "int64"}, "drop_columns": ["note"]},
    ]
    for version, change in enumerate(changes, 1):
        client.admin().alter_topic(topic, **change)
        eventually(lambda version=version: len(opened(client, topic, version)) >= 4, what="segments of the version")  # type: ignore[misc]


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["broker", "leader"])
def test_a_process_is_killed_during_the_change(own_cluster: LocalCluster, victim: str) -> None:
    create(own_cluster, "flights")
    with (
        own_cluster.connect() as client,
        busy(client, "flights") as producer,
        client.consumer("flights") as consumer,
    ):
        publishing = TypedPublisher(producer)
        publishing.wait_for_acks()
        primary = opened(client, "flights", 0)[0].brokers[0]
        changing = threading.Thread(target=_alter, args=(client,), daemon=True)
        changing.start()
        if victim == "broker":
            own_cluster.kill_broker(primary)
        else:
            eventually(lambda: "gate" in (own_cluster.folder / "topics" / "default.flights.yaml").read_text())
            own_cluster.kill_leader()
            own_cluster.start()
        changing.join(HANG_GUARD)
        eventually(lambda: len(opened(client, "flights", 1)) >= 4, what="segments of the new version")
        publishing.wait_for_acks()
        publishing.stop()
        tables = read(consumer, sum(publishing.sent))
    check(tables, publishing.sent)
    assert "gate" in tables[-1].column_names


def _alter(client: smq.Client) -> None:
    """The leader may end before it answers."""
    try:
        client.admin().alter_topic("flights", add_columns={"gate": "uint8"})
    except smq.SmqError as error:
        print(f"alter: {error.message}")
