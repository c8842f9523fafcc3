"""Producers without credentials publish by reference to a filer that needs them, with URLs that the leader signs."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import smq
from smq.producing.uploads import upload_targets
from smq_core.errors import StoreDenied, StoreStateUnknown
from smq_core.model.keyspace import KeyRange
from smq_storage.catalog import paths
from smq_storage.object_store.presigned.puts import put_presigned
from smq_storage.object_store.presigned.urls import PresignedPut
from smq_storage.object_store.store import ObjectExists, ObjectMissing
from support.data.message_ledger import read_back
from support.data.raw_flight import RawProducer
from support.data.raw_flight import rows as raw_rows
from support.data.reference_publisher import ReferencePublisher
from support.processes.cli import smq as run_smq
from support.processes.local_cluster import LocalCluster
from support.processes.seaweed import Seaweed
from support.waiting import HANG_GUARD, eventually

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("no_credentials")]


@pytest.fixture(scope="module")
def cluster(guarded: Seaweed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Its leader and its two brokers, which relay, have the key of the filer. ``connect`` gives clients none."""
    folder = tmp_path_factory.mktemp("cluster")
    arguments = ("--broker-memory", "4Gi", "--broker-arg=--relay=127.0.0.1:0")
    with LocalCluster(folder, guarded.settings(folder.name), brokers=2, arguments=arguments) as running:
        yield running


def values_of(cluster: LocalCluster, topic: str, count: int) -> list[bytes]:
    """The first messages of the topic, read with credentials, in the order of their values."""
    keys = {"filer_access_key": cluster.store.access_key, "filer_secret_key": cluster.store.secret_key}
    with smq.connect(cluster.address, **keys) as client, client.consumer(topic) as consumer:
        return sorted(v for b in read_back(consumer, count) for v in b.table.column("value").to_pylist())


@pytest.fixture
def puts(monkeypatch: pytest.MonkeyPatch) -> list[tuple[PresignedPut, bytes]]:
    """The URLs that producers of this test have used, with what they wrote."""
    used: list[tuple[PresignedPut, bytes]] = []

    def put(presigned: PresignedPut, data: Any, **options: Any) -> str:
        etag = put_presigned(presigned, data, **options)
        used.append((presigned, bytes(data)))
        return etag

    monkeypatch.setattr(upload_targets, "put_presigned", put)
    return used


def test_files_and_tables_are_published_and_a_used_url_changes_nothing(
    cluster: LocalCluster, client: smq.Client, topic: str, tmp_path: Path, puts: list[tuple[PresignedPut, bytes]]
) -> None:
    cluster.create(topic, segments={"min": 2, "max": 4})
    rows = [b"%03d" % n for n in range(300)]
    pq.write_table(pa.table({"key": rows[:200], "value": rows[:200]}), tmp_path / "rows.parquet")
    with client.producer(topic, producer_id="load/1") as producer:
        files = producer.publish_files([tmp_path / "rows.parquet"])
        table = producer.write(pa.table({"key": rows[200:], "value": rows[200:]}), by_reference=True)
        assert files.result(HANG_GUARD).rows == 200 and len(table.result(HANG_GUARD)) == 100
    assert len(puts) == 2
    for put, data in puts:
        with pytest.raises(ObjectExists):
            put_presigned(put, data, timeout=HANG_GUARD)
        with pytest.raises(StoreDenied):
            put_presigned(replace(put, headers={}), data, timeout=HANG_GUARD)
    assert values_of(cluster, topic, 300) == rows


def test_a_url_of_an_upload_alters_no_file_of_the_log(
    cluster: LocalCluster, client: smq.Client, topic: str, puts: list[tuple[PresignedPut, bytes]]
) -> None:
    cluster.create(topic, flush={"interval": "100ms"})
    store = cluster.store.open()
    with client.producer(topic) as producer:
        producer.send(b"streamed").result(HANG_GUARD)
        producer.write(pa.table({"value": [b"uploaded"]}), by_reference=True).result(HANG_GUARD)
        uid = producer._view.snapshot.topic.uid
    folder = paths.topic_folder(f"default/{topic}", uid)
    eventually(lambda: any(paths.first_offset(it.path) == 0 for it in store.list(folder)), what="the first chunk")
    before = {it.path: store.get(it.path).etag for it in store.list(folder)}
    ((put, data),) = puts
    upload = f"{paths.uploads_folder(uid)}/{put.url.partition('?')[0].rpartition('/')[2]}"
    for path in (*before, f"{folder}/new/{0:020d}.parquet", f"{paths.uploads_folder(uid)}/other.parquet"):
        assert upload in put.url
        with pytest.raises(StoreDenied):
            put_presigned(replace(put, url=put.url.replace(upload, path)), data, timeout=HANG_GUARD)
    assert {it.path: store.get(it.path).etag for it in store.list(folder)}.items() >= before.items()
    assert [it.path for it in store.list(paths.uploads_folder(uid))] == [upload]
    assert values_of(cluster, topic, 2) == [b"streamed", b"uploaded"]


def test_an_upload_that_never_ends_is_not_published_and_the_stream_goes_on(cluster: LocalCluster, topic: str) -> None:
    cluster.create(topic, partitions=64)
    store, rows = cluster.store.open(), pa.table({"value": [b"v" * 1000] * 1000})
    with cluster.connect() as client:
        brokers = [it.address for it in client.admin().brokers()]
        publisher = ReferencePublisher(store, topic, brokers, "bulk")
        (segment,) = publisher.layout.writable_segments
        whole = publisher.upload(pa.Table.from_batches([raw_rows(rows["value"].to_pylist())]))
    data = bytes(store.get(paths.uploaded_file(publisher.topic.uid, whole.name)).data)
    path = paths.uploaded_file(publisher.topic.uid, "endless.parquet")
    put = store.presign_put_new(path, len(data), hashlib.sha256(data).digest(), timedelta(minutes=5))
    reference = replace(whole.reference(KeyRange(0, 64)), upload="endless.parquet")
    stream = RawProducer(segment.primary.address, publisher.topic, segment)
    with begin_put(put, data[:-1]):
        stream.publish(reference, 0)
        stream.wait_resolved(0)
        ((_, error),) = stream.rejected
        assert isinstance(error, smq.ReferenceRejected) and "there is no such file" in error.message
        assert stream.wait_acked(stream.send(raw_rows([b"streamed"]), 0)) == 0
    assert stream.wait_acked(stream.send(raw_rows([b"then"]))) == 1
    stream.close()
    with pytest.raises(ObjectMissing):
        store.head(path)
    assert values_of(cluster, topic, 2) == [b"streamed", b"then"]


@contextmanager
def begin_put(put: PresignedPut, data: bytes) -> Iterator[None]:
    """A request that has sent only a part of its body, as long as this context lasts."""
    url = urlsplit(put.url)
    head = [f"PUT {url.path}?{url.query} HTTP/1.1", f"host: {url.netloc}"]
    head += [f"{name}: {value}" for name, value in put.headers.items()]
    with socket.create_connection((url.hostname or "", url.port or 80), HANG_GUARD) as connection:
        connection.sendall("\r\n".join([*head, "", ""]).encode() + data)
        yield


def test_an_upload_without_an_answer_is_repeated_with_another_url(
    cluster: LocalCluster, client: smq.Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create(topic)
    written: list[str] = []

    def put(presigned: PresignedPut, data: Any, **options: Any) -> str:
        etag = put_presigned(presigned, data, **options)
        written.append(presigned.url)
        if len(written) == 1:
            raise StoreStateUnknown("no answer")
        return etag

    monkeypatch.setattr(upload_targets, "put_presigned", put)
    with client.producer(topic, producer_id="p") as producer:
        producer.write(pa.table({"value": [b"once"]}), by_reference=True).result(HANG_GUARD)
        producer.send(b"then").result(HANG_GUARD)
    names = [url.partition("?")[0].rpartition("/")[2] for url in written]
    assert [name.rpartition("-")[0] for name in names] == [f"p-{producer.epoch}-1", f"p-{producer.epoch}-2"]
    assert values_of(cluster, topic, 2) == [b"once", b"then"]


def test_an_atomic_publish_needs_no_credentials(
    cluster: LocalCluster, client: smq.Client, topic: str, puts: list[tuple[PresignedPut, bytes]]
) -> None:
    cluster.create(topic)
    rows = [b"%d" % n for n in range(10)]
    receipt = client.publish_atomically(topic, app="etl", version=1, table=pa.table({"key": rows, "value": rows}))
    assert (receipt.rows, len(puts)) == (10, 1)
    assert values_of(cluster, topic, 10) == rows


@pytest.mark.slow
def test_the_command_line_needs_no_credentials(cluster: LocalCluster, topic: str, tmp_path: Path) -> None:
    cluster.create(topic)
    pq.write_table(pa.table({"value": [b"a", b"b"]}), tmp_path / "rows.parquet")
    ran = run_smq("publish", topic, "--by-reference", str(tmp_path / "rows.parquet"), leader=cluster.address)
    assert ran.code == 0 and ran.out.startswith("2 messages of 1 file published"), ran
    assert values_of(cluster, topic, 2) == [b"a", b"b"]


def test_uploads_go_through_the_relay(cluster: LocalCluster, topic: str) -> None:
    cluster.create(topic)
    relay = eventually(lambda: cluster.relay_address("broker-1"), what="broker-1 relays")
    with smq.connect(via=relay) as client, client.producer(topic) as producer:
        producer.write(pa.table({"value": [b"outside"]}), by_reference=True).result(HANG_GUARD)
    assert values_of(cluster, topic, 1) == [b"outside"]


def test_direct_uploads_without_credentials_are_refused_with_what_to_set(cluster: LocalCluster, topic: str) -> None:
    cluster.create(topic)
    with smq.connect(cluster.address, uploads="direct") as client, client.producer(topic) as producer:
        with pytest.raises(StoreDenied, match="AWS_ACCESS_KEY_ID"):
            producer.write(pa.table({"value": [b"v"]}), by_reference=True)
        producer.send(b"streamed").result(HANG_GUARD)
    assert values_of(cluster, topic, 1) == [b"streamed"]


def test_a_client_with_credentials_uses_them_unless_an_option_says_otherwise(
    cluster: LocalCluster, topic: str, puts: list[tuple[PresignedPut, bytes]]
) -> None:
    cluster.create(topic)
    keys = {"filer_access_key": cluster.store.access_key, "filer_secret_key": cluster.store.secret_key}
    for number, mode in enumerate(("auto", "presigned")):
        with smq.connect(cluster.address, uploads=mode, **keys) as client, client.producer(topic) as producer:  # type: ignore[arg-type]
            producer.write(pa.table({"value": [b"v"]}), by_reference=True).result(HANG_GUARD)
        assert len(puts) == number


def test_a_deleted_topic_gets_no_urls(cluster: LocalCluster, client: smq.Client, topic: str) -> None:
    cluster.create(topic)
    with client.producer(topic) as producer:
        client.admin().delete(topic)
        with pytest.raises(smq.UnknownTopic):
            producer.write(pa.table({"value": [b"v"]}), by_reference=True)
