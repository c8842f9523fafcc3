"""``pyspark_smq.read`` has each message of the log once, with segment and offset, and opens only the files it needs."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pyspark_smq
import smq
from smq.reading import open_topic
from smq_core.errors import CorruptChunk
from smq_storage.catalog import paths
from support.data.message_ledger import BackgroundPublisher, MessageLedger
from support.processes.local_cluster import LocalCluster
from support.spark.topics import collected, consumed, roll, split, wait_for_files
from support.waiting import HANG_GUARD, eventually

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.integration]

SMALL_FLUSH = {"bytes": "64Ki", "interval": "1s"}


def read(spark: SparkSession, cluster: LocalCluster, topic: str, **arguments: Any) -> DataFrame:
    return pyspark_smq.read(spark, topic, leader=cluster.address, **arguments)


def places(table: pa.Table) -> list[tuple[str, int]]:
    return list(zip(table.column("_segment").to_pylist(), table.column("_offset").to_pylist(), strict=True))


@pytest.mark.slow
def test_chunks_of_split_segments(s3a: SparkSession, cluster: LocalCluster, client: smq.Client, topic: str) -> None:
    cluster.create(topic, flush=SMALL_FLUSH)
    ledger = MessageLedger()
    with client.producer(topic) as producer:
        ledger.send(producer, 5000)
        producer.flush()
        split(client, topic)
        ledger.send(producer, 2000)
        producer.flush()
    wait_for_files(client, topic, ledger.total)
    frame = read(s3a, cluster, topic)
    assert len(frame.inputFiles()) >= 3, "chunks are read by Spark itself"
    assert collected(frame).equals(consumed(client, topic, ledger.total))
    assert frame.count() == ledger.total


@pytest.mark.slow
def test_uploads_are_read_by_spark_with_their_places(
    s3a: SparkSession, cluster: LocalCluster, client: smq.Client, topic: str, tmp_path: Path
) -> None:
    cluster.create(topic, flush=SMALL_FLUSH)
    rows = pa.table({"key": [b"k%d" % (n % 50) for n in range(3000)], "value": [b"v%d" % n for n in range(3000)]})
    pq.write_table(rows, tmp_path / "rows.parquet")
    with client.producer(topic) as producer:
        producer.write(rows.slice(0, 100)).result()
        producer.publish_files([tmp_path / "rows.parquet"]).result()
        split(client, topic)
        producer.publish_files([tmp_path / "rows.parquet"]).result()
        producer.write(rows.slice(0, 100)).result()
    wait_for_files(client, topic, 6200)
    frame = read(s3a, cluster, topic)
    assert any("/_uploads/" in file for file in frame.inputFiles())
    assert collected(frame).equals(consumed(client, topic, 6200))
    only = read(s3a, cluster, topic, columns=["_offset"])
    assert only.columns == ["_offset"] and only.count() == 6200


@pytest.mark.slow
def test_every_type_is_the_same_by_both_ways(
    s3a: SparkSession, cluster: LocalCluster, client: smq.Client, topic: str
) -> None:
    types: dict[str, tuple[str, list[Any]]] = {
        "a": ("bool", [True, None]),
        "b": ("int8", [-128, None]),
        "c": ("int64", [-(1 << 63), None]),
        "d": ("uint8", [255, None]),
        "e": ("uint16", [65535, None]),
        "f": ("uint32", [(1 << 32) - 1, None]),
        "g": ("uint64", [(1 << 64) - 1, None]),
        "h": ("float32", [0.5, None]),
        "i": ("float64", [0.1, None]),
        "j": ("string", ["grüße", None]),
        "k": ("binary", [b"\x00\xff", None]),
        "l": ("date32", [datetime(1969, 12, 31).date(), None]),
        "m": ("timestamp[us, UTC]", [datetime(2026, 1, 31, 1, 2, 3, 4, tzinfo=UTC), None]),
        "n": ("timestamp[us]", [datetime(2026, 3, 29, 2, 30, 0, 1), None]),
        "o": ("decimal128(38, 10)", [Decimal("-1234567890.0123456789"), None]),
        "p": ("list<int16>", [[1, None], None]),
        "q": ("list<list<uint32>>", [[[(1 << 32) - 1], None], None]),
        "r": ("decimal128(9, 2)", [Decimal("-0.01"), None]),
    }
    columns = [{"name": name, "type": type_, "nullable": True} for name, (type_, _) in types.items()]
    cluster.create(topic, flush=SMALL_FLUSH, schema=columns)
    with client.producer(topic) as producer:
        for row in range(2):
            producer.send({name: values[row] for name, (_, values) in types.items()}, headers={"h": b"x"})
        producer.flush()
        roll(client, topic)
        for row in range(2):
            producer.send({name: values[row] for name, (_, values) in types.items()})
        producer.flush()
    wait_for_files(client, topic, 4)
    native = read(s3a, cluster, topic)
    known = consumed(client, topic, 4)
    assert len(native.inputFiles()) == 2, "all of it is read by Spark itself"
    assert collected(native).equals(known)
    assert known.column("g").to_pylist().count(None) == 2


@pytest.mark.slow
def test_old_files_get_new_and_wider_columns_and_lose_dropped_ones(
    s3a: SparkSession, cluster: LocalCluster, client: smq.Client, topic: str
) -> None:
    narrow = {"a": "int8", "b": "int16", "c": "int32", "d": "uint8", "e": "uint32", "f": "float32", "g": "uint16"}
    wide = {"a": "int64", "b": "int32", "c": "int64", "d": "uint16", "e": "uint64", "f": "float64", "g": "uint64"}
    columns = [{"name": name, "type": type_} for name, type_ in narrow.items()]
    columns.append({"name": "gone", "type": "string", "nullable": True})  # type: ignore[dict-item]
    cluster.create(topic, flush=SMALL_FLUSH, schema=columns)
    row = {"a": -128, "b": -(1 << 15), "c": -(1 << 31), "d": 255, "e": (1 << 32) - 1, "f": 0.5, "g": 65535}
    with client.producer(topic) as producer:
        producer.send(row | {"gone": "x"}).result()
        client.admin().alter_topic(topic, widen_columns=wide, drop_columns=["gone"], add_columns={"new": "string"})
        eventually(
            lambda: [s.schema_version for s in client.admin().topic(topic).segments if s.phase == "open"] == [1],
            what="a segment of the new schema",
        )
        producer.send(row | {"new": "y", "a": 1 << 40}).result()
    wait_for_files(client, topic, 2)
    frame = read(s3a, cluster, topic)
    assert len(frame.inputFiles()) == 2
    assert "gone" not in frame.columns
    assert collected(frame).equals(consumed(client, topic, 2))


@pytest.mark.slow
def test_only_files_with_what_is_wanted_are_opened(
    s3a: SparkSession, cluster: LocalCluster, client: smq.Client, topic: str
) -> None:
    cluster.create(topic, flush={"bytes": "64Mi", "interval": "1h"})
    began = datetime(2026, 1, 1, tzinfo=UTC)
    segments = []
    with client.producer(topic) as producer:
        for hour in range(5):
            for minute in range(60):
                time = began + timedelta(hours=hour, minutes=minute)
                producer.send(b"v", key=b"%d-%02d" % (hour, minute), timestamp=time)
            producer.flush()
            segments.append(roll(client, topic))
    everything = read(s3a, cluster, topic)
    assert len(everything.inputFiles()) == 5 and everything.count() == 300

    by_time = read(s3a, cluster, topic, timestamp=(began + timedelta(minutes=90), began + timedelta(minutes=150)))
    assert len(by_time.inputFiles()) == 2 and by_time.count() == 60

    by_key = read(s3a, cluster, topic, key=("3-10", "3-19"), columns=["value", "_offset"])
    assert len(by_key.inputFiles()) == 1 and by_key.columns == ["value", "_offset"]
    assert sorted(row["_offset"] for row in by_key.collect()) == list(range(10, 20))

    by_segment = read(s3a, cluster, topic, segments=segments[:2])
    assert len(by_segment.inputFiles()) == 2 and by_segment.count() == 120

    appended = [row[0] for row in everything.select("appended").where("_offset = 0").collect()]
    middle = sorted(appended)[2].astimezone(UTC)
    since = read(s3a, cluster, topic, start=middle)
    assert len(since.inputFiles()) == 3 and since.count() == 180
    until = read(s3a, cluster, topic, end=middle)
    assert len(until.inputFiles()) == 2 and until.count() == 120

    positions = read(s3a, cluster, topic, start={segments[1]: 50}, end={segments[2]: 5}, segments=segments[1:3])
    counts = Counter(row["_segment"] for row in positions.select("_segment").collect())
    assert counts == {segments[1]: 10, segments[2]: 5}


@pytest.mark.slow
def test_two_runs_give_the_same_rows_while_producers_write_on(
    s3a: SparkSession, cluster: LocalCluster, client: smq.Client, topic: str
) -> None:
    cluster.create(topic, flush=SMALL_FLUSH)
    ledger = MessageLedger()
    with client.producer(topic, max_in_flight=100_000) as producer:
        publisher = BackgroundPublisher(producer, ledger)
        eventually(lambda: publisher.acked > 100)
        frame = read(s3a, cluster, topic)
        first = collected(frame)
        acked = publisher.acked
        eventually(lambda: publisher.acked > acked + 100)
        split(client, topic)
        second = collected(frame)
        publisher.stop()
    wait_for_files(client, topic, ledger.total)
    assert first.num_rows and first.equals(second)
    assert collected(frame).equals(first), "also when what was in memory is in files"
    everything = consumed(client, topic, ledger.total)
    known = set(places(first))
    assert everything.filter([place in known for place in places(everything)]).equals(first)


def test_large_values_are_whole(s3a: SparkSession, cluster: LocalCluster, client: smq.Client, topic: str) -> None:
    cluster.create(topic, flush=SMALL_FLUSH)
    with client.producer(topic, max_inline_bytes=64 << 10) as producer:
        producer.send(b"small", key=b"a").result()
        producer.send(b"x" * 200_000, key=b"b").result()
        roll(client, topic)
        producer.send(b"y" * 200_000, key=b"b").result()
    values = [row["value"] for row in read(s3a, cluster, topic).collect()]
    assert sorted(map(len, values)) == [5, 200_000, 200_000]


def test_messages_that_are_in_no_file_yet(
    s3a: SparkSession, cluster: LocalCluster, client: smq.Client, topic: str
) -> None:
    cluster.create(topic, flush={"bytes": "64Mi", "interval": "1h"})
    ledger = MessageLedger()
    with client.producer(topic) as producer:
        ledger.send(producer, 500)
        producer.flush()
        roll(client, topic)
        ledger.send(producer, 300)
        producer.flush()
    frame = read(s3a, cluster, topic)
    assert len(frame.inputFiles()) == 1
    assert collected(frame).equals(consumed(client, topic, 800))


def test_a_damaged_file_is_named(s3a: SparkSession, cluster: LocalCluster, client: smq.Client, topic: str) -> None:
    cluster.create(topic, flush={"bytes": "4Ki", "interval": "100ms"})
    with client.producer(topic) as producer:
        MessageLedger().send(producer, 100)
        producer.flush(HANG_GUARD)
    wait_for_files(client, topic, 100)
    at, store = open_topic(topic, leader=cluster.address).location, cluster.store.open()
    chunk = next(it.path for it in store.list(paths.topic_folder(at.topic, at.uid)) if paths.first_offset(it.path) == 0)
    store.put(chunk, bytes(store.get(chunk).data)[:-100] + b"?" * 100)
    with pytest.raises(CorruptChunk, match=chunk):
        read(s3a, cluster, topic)
    with pytest.raises(Exception, match=chunk):
        s3a.read.format("smq").options(topic=topic, leader=cluster.address).load().collect()


@pytest.mark.slow
def test_files_are_pinned_until_release(
    s3a: SparkSession, cluster: LocalCluster, client: smq.Client, topic: str
) -> None:
    cluster.create(topic, flush=SMALL_FLUSH)
    with client.producer(topic) as producer:
        producer.send(b"x").result()
    roll(client, topic)
    frame = read(s3a, cluster, topic)
    (pin,) = client.admin().pins(topic)
    assert "pyspark_smq.read" in pin.owner
    assert frame.count() == 1
    pyspark_smq.release(frame)
    assert client.admin().pins(topic) == []
    with pytest.raises(Exception, match="Begin the read again"):
        frame.where("_offset >= 0").count()
