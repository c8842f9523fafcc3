"""Bad references and bad staged files, with real processes: a reason for each, nothing visible, the stream goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import smq
from smq_core.errors import InvalidRequest, ReferenceRejected
from smq_core.model.keyspace import KeyRange
from smq_core.model.reference import Reference
from smq_storage.catalog import paths, sealed_index
from smq_storage.catalog.atomic_publishes import read_publishes
from smq_storage.object_store.store import Store
from smq_storage.uploads.upload_format import footer_of, sort_by_partition
from support.data import uploads
from support.data.message_ledger import read_back
from support.data.raw_flight import RawProducer, rows
from support.data.reference_publisher import ReferencePublisher
from support.data.uploads import WrittenUpload
from support.processes.local_cluster import LocalCluster
from support.waiting import HANG_GUARD, eventually

pytestmark = pytest.mark.integration

PARTITIONS, FILLED = 64, 8
"""The partitions of the topic, and those with rows."""
WHOLE = KeyRange(0, PARTITIONS)
ROWS = 40


class Uploads:
    """Uploads of one topic. The value of a message is its number."""

    def __init__(self, cluster: LocalCluster, client: smq.Client, topic: str) -> None:
        eventually(lambda: sum(it.state == "alive" for it in client.admin().brokers()) >= 3, what="3 brokers")
        cluster.create(topic, partitions=PARTITIONS)
        self.store: Store = cluster.store.open()
        self._publisher = ReferencePublisher(self.store, topic, [it.address for it in client.admin().brokers()], "bulk")
        self.topic = self._publisher.topic
        (self.segment,) = self._publisher.layout.writable_segments
        self.good = self._publisher.upload(self.table())

    def table(self) -> pa.Table:
        batches = [rows([b"%d" % (5 * p + n) for n in range(5)], partition=p) for p in range(FILLED)]
        return pa.Table.from_batches(batches)

    def write(self, name: str, table: pa.Table, **footer: int) -> WrittenUpload:
        """An upload with this table, whose footer says that it is one of the topic."""
        ordered = sort_by_partition(table)
        claimed = replace(footer_of(sort_by_partition(self.table()), self.topic.uid, 0, "p", 1), **footer)
        data = uploads.upload_bytes(ordered, claimed)
        etag = self.store.put(paths.uploaded_file(self.topic.uid, name), data)
        return replace(self.good, name=name, etag=etag, size=data.size)

    def bytes(self, name: str, data: bytes) -> WrittenUpload:
        etag = self.store.put(paths.uploaded_file(self.topic.uid, name), data)
        return replace(self.good, name=name, etag=etag, size=len(data))

    def parquet(self, name: str) -> WrittenUpload:
        sink = pa.BufferOutputStream()
        pq.write_table(self.table(), sink)
        return self.bytes(name, sink.getvalue().to_pybytes())


Bad = Callable[[Uploads], WrittenUpload]

# What is wrong with a file, whoever publishes it: the field that the error names, a part of its reason, the file.
FILES: dict[str, tuple[str, str, Bad]] = {
    "a path outside": ("upload", "", lambda it: replace(it.good, name="../../../t/_layout.json")),
    "a chunk of the log": ("upload", "", lambda it: replace(it.good, name=f"../x/{0:020d}.parquet")),
    "a file in a folder": ("upload", "", lambda it: replace(it.good, name="other/u.parquet")),
    "no such file": ("upload", "no such file", lambda it: replace(it.good, name="missing.parquet")),
    "another etag": ("upload", "etag", lambda it: replace(it.good, etag='"0123"')),
    "no Parquet": ("upload", "", lambda it: it.bytes("text.parquet", b"no Parquet at all")),
    "an empty file": ("upload", "", lambda it: it.bytes("empty.parquet", b"")),
    "a file that was cut off": (
        "upload",
        "",
        lambda it: it.bytes(
            "cut.parquet", bytes(it.store.get(paths.uploaded_file(it.topic.uid, it.good.name)).data)[:-9]
        ),
    ),
    "Parquet that is no upload": ("upload", "", lambda it: it.parquet("plain.parquet")),
    "a column too few": (
        "columns",
        "headers",
        lambda it: it.write("few.parquet", it.table().drop_columns(["headers"])),
    ),
    "more rows than the footer says": (
        "footer",
        "rows",
        lambda it: it.write("more.parquet", pa.concat_tables([it.table()] * 2)),
    ),
}

REFERENCES: dict[str, tuple[str, Callable[[Reference], Reference]]] = {
    "no rows": ("rows", lambda it: replace(it, rows=0)),
    "too few rows": ("rows", lambda it: replace(it, rows=ROWS - 1)),
    "too many rows": ("rows", lambda it: replace(it, rows=ROWS + 1)),
    "other rows than those of the range": ("rows", lambda it: replace(it, partition_min=1)),
    "a range outside of the segment": ("partitions", lambda it: replace(it, partition_max=PARTITIONS)),
    "another schema": ("schema_version", lambda it: replace(it, schema_version=1)),
    "more bytes than the file": ("bytes", lambda it: replace(it, bytes=1 << 40)),
}


def values(client: smq.Client, topic: str, count: int) -> list[bytes]:
    with client.consumer(topic) as consumer:
        return [v for batch in read_back(consumer, count) for v in batch.table.column("value").to_pylist()]


def test_each_bad_reference_is_rejected_with_its_reason_and_the_stream_goes_on(
    cluster: LocalCluster, client: smq.Client, topic: str
) -> None:
    it = Uploads(cluster, client, topic)
    bad = {name: (field, part, make(it).reference(WHOLE)) for name, (field, part, make) in FILES.items()}
    good = it.good.reference(WHOLE)
    bad |= {name: (field, "", change(good)) for name, (field, change) in REFERENCES.items()}
    producer = RawProducer(it.segment.primary.address, it.topic, it.segment)
    for number, (name, (field, part, reference)) in enumerate(bad.items()):
        producer.publish(reference, number)
        eventually(lambda n=number: len(producer.rejected) > n or producer.error, what=name)
        sequence, error = producer.rejected[number]
        assert sequence == number and isinstance(error, ReferenceRejected), name
        assert (error.upload, error.field) == (reference.upload, field) and part in error.message, (name, error)
        assert producer.wait_acked(producer.send(rows([b"after %d" % number]), number)) == number
    assert producer.wait_acked(producer.publish(good)) == len(bad)
    producer.close()
    wanted = [b"after %d" % number for number in range(len(bad))] + [b"%d" % n for n in range(ROWS)]
    assert values(client, topic, len(wanted)) == wanted


def test_each_bad_staged_file_is_refused_with_its_reason_and_nothing_is_committed(
    cluster: LocalCluster, client: smq.Client, topic: str
) -> None:
    it = Uploads(cluster, client, topic)
    times = it.good.reference(WHOLE)
    good = smq.StagedFile(
        name=it.good.name,
        etag=it.good.etag,
        rows=ROWS,
        bytes=it.good.size,
        timestamp_min=times.timestamp_min,
        timestamp_max=times.timestamp_max,
        schema_version=0,
    )
    bad: dict[str, tuple[str, str, smq.StagedFile]] = {}
    for name, (field, part, make) in FILES.items():
        file = make(it)
        bad[name] = field, part, replace(good, name=file.name, etag=file.etag, bytes=file.size)
    bad["too many rows"] = "rows", "", replace(good, rows=ROWS + 1)
    bad["too few rows"] = "rows", "", replace(good, rows=ROWS - 1)
    bad["other bytes"] = "upload", "bytes", replace(good, bytes=good.bytes + 1)
    other = client.stage(topic, table=pa.table({"value": [b"whole"]}))
    for name, (field, part, file) in bad.items():
        with pytest.raises(ReferenceRejected) as raised:
            client.publish_atomically(topic, app="etl", version=1, staged=[*other, file], timeout=HANG_GUARD)
        assert (raised.value.upload, raised.value.field) == (file.name, field), (name, raised.value)
        assert part in raised.value.message, (name, raised.value)
    with pytest.raises(InvalidRequest, match="twice"):
        client.publish_atomically(topic, app="etl", version=1, staged=[good, *other, good])
    app = read_publishes(it.store, it.topic.name, it.topic.uid).app("etl")
    assert app is not None and app.version is None and app.unfinished is None
    with client.producer(topic) as producer:
        producer.send(b"streamed").result(HANG_GUARD)
    receipt = client.publish_atomically(topic, app="etl", version=1, staged=[good, *other])
    assert not receipt.already_published and receipt.rows == ROWS + 1
    replaced = client.publish_atomically(topic, app="etl", version=1, staged=[replace(good, etag="wrong")])
    assert replaced.already_published and not replaced.rows
    assert sorted(values(client, topic, ROWS + 2)) == sorted([b"%d" % n for n in range(ROWS)] + [b"streamed", b"whole"])


def test_an_unreadable_file_list_hides_no_rows_of_an_upload(
    cluster: LocalCluster, client: smq.Client, topic: str
) -> None:
    it = Uploads(cluster, client, topic)
    producer = RawProducer(it.segment.primary.address, it.topic, it.segment)
    assert producer.wait_acked(producer.publish(it.good.reference(WHOLE))) == 0
    client.admin().roll(topic, it.segment.name)

    def named() -> str:
        entries = sealed_index.read(it.store, it.topic.name, it.topic.uid)
        return next((entry.file_list for entry in entries if entry.name == it.segment.name), "")

    file_list = eventually(named, what="a file list")
    it.store.put(paths.file_list(it.topic.name, it.topic.uid, file_list), b"damaged")
    with client.producer(topic) as later:
        later.send(b"streamed").result(HANG_GUARD)
    assert values(client, topic, ROWS + 1) == [*(b"%d" % n for n in range(ROWS)), b"streamed"]
    producer.close()
