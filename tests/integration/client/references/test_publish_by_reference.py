"""Producers that publish by reference, with real processes: order, splits, killed brokers, lost files."""

from __future__ import annotations

import io
import threading
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import smq
from smq_core.errors import DataLost
from smq_storage.catalog import paths
from support.data.message_ledger import message, read_back
from support.processes.local_cluster import LocalCluster
from support.waiting import HANG_GUARD, eventually

pytestmark = pytest.mark.integration

KEYS = 16


class MixedPublisher:
    """One producer's messages in the background, numbered per key: a table by reference, a table, single messages."""

    def __init__(self, producer: smq.Producer, rows: int) -> None:
        self.sent = [0] * KEYS
        self.written: list[tuple[list[bytes], smq.Delivery[smq.TableReceipt]]] = []
        self.failure: BaseException | None = None
        self._producer = producer
        self._rows = rows
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def total(self) -> int:
        return sum(self.sent)

    def wait_for(self, rounds: int) -> None:
        """Waits until there are that many more tables."""
        wanted = len(self.written) + 2 * rounds
        eventually(lambda: len(self.written) >= wanted or self.failure is not None)
        assert self.failure is None, self.failure

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure
        self._producer.flush(HANG_GUARD)

    def check(self, batches: list[smq.Batch]) -> None:
        """Every message came once, those of a key in order, and those of tables where the receipts say."""
        places: dict[tuple[str, int], bytes] = {}
        found = [0] * KEYS
        for batch in batches:
            for row, value in enumerate(batch.table.column("value").to_pylist()):
                key = int(value.split(b":")[0])
                assert value == message(key, found[key])
                found[key] += 1
                places[batch.segment, batch.first_offset + row] = value
        assert found == self.sent
        for values, delivery in self.written:
            receipt = delivery.result(HANG_GUARD)
            assert [places[receipt[row]] for row in range(len(values))] == values

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._write(by_reference=True)
                self._write(by_reference=False)
                for key in range(KEYS):
                    self._producer.send(message(key, self.sent[key]), key=b"key-%d" % key)
                    self.sent[key] += 1
        except BaseException as error:
            self.failure = error

    def _write(self, *, by_reference: bool) -> None:
        keys, values = [], []
        for row in range(self._rows):
            key = row % KEYS
            keys.append(b"key-%d" % key)
            values.append(message(key, self.sent[key]))
            self.sent[key] += 1
        table = pa.table({"key": keys, "value": values})
        self.written.append((values, self._producer.write(table, by_reference=by_reference)))


def uploaded(cluster: LocalCluster, producer: smq.Producer) -> list[bytes]:
    """The content of all uploads of the producer's topic."""
    store = cluster.store.open()
    folder = paths.uploads_folder(producer._view.snapshot.topic.uid)
    return [bytes(store.get(it.path).data) for it in store.list(folder)]


def open_segments(client: smq.Client, topic: str) -> list[smq.SegmentInfo]:
    return [s for s in client.admin().segments(topic) if s.phase == "open"]


@pytest.mark.slow
def test_segments_are_split_while_publishing(cluster: LocalCluster, client: smq.Client, topic: str) -> None:
    cluster.create(topic)
    with client.producer(topic, linger=0.0) as producer, client.consumer(topic) as consumer:
        publishing = MixedPublisher(producer, 300)
        for wanted in (2, 3, 4):
            publishing.wait_for(4)
            widest = max(open_segments(client, topic), key=lambda s: s.stop - s.start)
            client.admin().split(topic, widest.name)
            eventually(lambda wanted=wanted: len(open_segments(client, topic)) == wanted)
        publishing.wait_for(4)
        publishing.stop()
        publishing.check(read_back(consumer, publishing.total))


def test_a_primary_is_killed_while_publishing(own_cluster: LocalCluster, topic: str) -> None:
    own_cluster.create(topic)
    with (
        own_cluster.connect() as client,
        client.producer(topic, linger=0.0) as producer,
        client.consumer(topic) as consumer,
    ):
        publishing = MixedPublisher(producer, 300)
        publishing.wait_for(4)
        own_cluster.kill_broker(open_segments(client, topic)[0].brokers[0])
        publishing.wait_for(8)
        publishing.stop()
        publishing.check(read_back(consumer, publishing.total))


def test_a_vanished_upload_fails_its_delivery_and_the_producer_goes_on(
    cluster: LocalCluster, client: smq.Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here it is gone before the primary looks at it."""
    cluster.create(topic)
    store = cluster.store.open()
    with client.producer(topic) as producer, client.consumer(topic) as consumer:
        submit = producer._references._submit

        def delete_first(files, states):
            for file in files:
                store.delete(paths.uploaded_file(producer._view.snapshot.topic.uid, file.name))
            submit(files, states)

        monkeypatch.setattr(producer._references, "_submit", delete_first)
        gone = producer.write(pa.table({"value": [b"gone"] * 10}), by_reference=True)
        monkeypatch.setattr(producer._references, "_submit", submit)
        good = producer.write(pa.table({"value": [b"good"] * 10}), by_reference=True)
        producer.send(b"streamed")
        with pytest.raises(smq.ReferenceRejected, match="there is no such file"):
            gone.result(HANG_GUARD)
        assert len(good.result(HANG_GUARD)) == 10
        producer.flush()
        values = [v for b in read_back(consumer, 11) for v in b.table.column("value").to_pylist()]
        assert values == [b"good"] * 10 + [b"streamed"]


def test_an_upload_that_is_deleted_later_is_a_loss_with_its_place(
    cluster: LocalCluster, client: smq.Client, topic: str
) -> None:
    cluster.create(topic)
    store = cluster.store.open()
    with client.producer(topic) as producer:
        receipt = producer.write(pa.table({"value": [b"gone"] * 10}), by_reference=True).result(HANG_GUARD)
        producer.send(b"after").result(HANG_GUARD)
        for info in list(store.list(paths.uploads_folder(producer._view.snapshot.topic.uid))):
            store.delete(info.path)
    with client.consumer(topic) as consumer, pytest.raises(DataLost) as raised:
        read_back(consumer, 11)
    assert (raised.value.start, raised.value.stop) == (0, 10) == (receipt[0].offset, receipt[9].offset + 1)


def test_files_of_a_typed_topic(cluster: LocalCluster, client: smq.Client, topic: str, tmp_path: Path) -> None:
    columns = [{"name": "id", "type": "int64"}, {"name": "name", "type": "string", "nullable": True}]
    cluster.create(topic, schema=columns, key="id", segments={"min": 4, "max": 4})
    rows = pa.table({"id": pa.array(range(50_000), pa.int32()), "name": [f"n{n}" for n in range(50_000)]})
    more = pa.table({"id": pa.array(range(50_000, 55_000), pa.int32()), "name": [f"n{n}" for n in range(5000)]})
    pq.write_table(rows.slice(0, 30_000), tmp_path / "one.parquet", row_group_size=7000)
    pq.write_table(rows.slice(30_000), tmp_path / "two.parquet")
    (tmp_path / "text.parquet").write_text("no Parquet")
    other = io.BytesIO()
    pq.write_table(pa.table({"id": ["text"]}), other)
    with client.producer(topic) as producer, client.consumer(topic) as consumer:
        with pytest.raises(smq.InvalidRequest, match=r"text\.parquet is not a Parquet file"):
            producer.publish_files([tmp_path / "one.parquet", tmp_path / "text.parquet"])
        with pytest.raises(smq.SchemaMismatch, match=r"files\[1\].*id"):
            producer.publish_files([tmp_path / "one.parquet", other])
        receipt = producer.publish_files([tmp_path / "one.parquet", tmp_path / "two.parquet"]).result(HANG_GUARD)
        assert [it.rows for it in receipt.files] == [30_000, 20_000]
        assert {r.segment for it in receipt.files for r in it.ranges} == {s.name for s in open_segments(client, topic)}
        client.write_upload(topic, more, tmp_path / "three.parquet")
        producer.publish_files([tmp_path / "three.parquet"]).result(HANG_GUARD)
        assert (tmp_path / "three.parquet").read_bytes() in uploaded(cluster, producer), "the bytes are copied"
        found = pa.concat_tables([b.table.select(["id", "name"]) for b in read_back(consumer, 55_000)])
        assert found.sort_by("id").equals(pa.concat_tables([rows, more]).cast(found.schema))


def test_files_that_are_in_the_filer(cluster: LocalCluster, client: smq.Client, topic: str) -> None:
    cluster.create(topic)
    store = replace(cluster.store, url="s3://smq").open()
    rows = pa.table({"value": [f"v{n}".encode() for n in range(3000)]})
    file = io.BytesIO()
    pq.write_table(rows, file, row_group_size=500)
    store.put(f"inbox/{topic}/part-0.parquet", file.getvalue())
    finished = io.BytesIO()
    client.write_upload(topic, rows, finished)
    store.put(f"inbox/{topic}/part-1.parquet", finished.getvalue())
    urls = [f"s3://smq/inbox/{topic}/part-{n}.parquet" for n in range(2)]
    with client.producer(topic) as producer, client.consumer(topic) as consumer:
        for missing in (f"s3://smq/inbox/{topic}/part-9.parquet", "s3://smq"):
            with pytest.raises(smq.InvalidRequest, match=missing):
                producer.publish_files([urls[0], missing])
        with pytest.raises(smq.InvalidRequest, match="same file"):
            producer.publish_files([urls[0], urls[0]])
        receipt = producer.publish_files(urls).result(HANG_GUARD)
        assert [(it.file, it.rows) for it in receipt.files] == [(url, 3000) for url in urls]
        assert finished.getvalue() in uploaded(cluster, producer), "the bytes are copied"
        values = [v for b in read_back(consumer, 6000) for v in b.table.column("value").to_pylist()]
        assert sorted(values) == sorted(2 * rows.column("value").to_pylist())
