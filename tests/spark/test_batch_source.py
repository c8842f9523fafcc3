"""``spark.read.format("smq")`` gives exactly the planned messages, wherever they are."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import smq
from smq.reading import load_state, open_topic
from smq_storage.catalog.stored_pins import list_pins
from smq_storage.process.ports import free_port
from support.data.message_ledger import MessageLedger
from support.processes.local_cluster import LocalCluster, manifest
from support.spark.topics import collected, consumed, roll, split, wait_for_files
from support.waiting import HANG_GUARD, eventually

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.integration]

IN_MEMORY = {"bytes": "64Mi", "interval": "1h"}
TYPED = [{"name": "carrier", "type": "string"}, {"name": "delay", "type": "int32", "nullable": True}]


def load(spark: SparkSession, cluster: LocalCluster, topic: str, **options: str) -> DataFrame:
    return spark.read.format("smq").options(**({"topic": topic, "leader": cluster.address} | options)).load()


def send(client: smq.Client, topic: str, ledger: MessageLedger, count: int) -> None:
    with client.producer(topic) as producer:
        ledger.send(producer, count)
        producer.flush(HANG_GUARD)


def write(client: smq.Client, topic: str, table: pa.Table) -> None:
    with client.producer(topic) as producer:
        producer.write(table).result(HANG_GUARD)


@pytest.mark.slow
def test_files_memory_and_splits(spark: SparkSession, cluster: LocalCluster, client: smq.Client, topic: str) -> None:
    cluster.create(topic, flush={"bytes": "16Ki", "interval": "1h"})
    ledger = MessageLedger()
    send(client, topic, ledger, 3000)
    split(client, topic)
    send(client, topic, ledger, 1000)
    expected = consumed(client, topic, ledger.total)
    assert collected(load(spark, cluster, topic)).equals(expected)
    many = load(spark, cluster, topic, minPartitions="7", maxPartitionBytes="20k")
    assert many.rdd.getNumPartitions() >= 7
    assert collected(many).equals(expected)
    places = load(spark, cluster, topic, columns="_offset,_segment")
    assert collected(places).equals(expected.select(["_offset", "_segment"]))
    assert load(spark, cluster, topic, columns="_segment").count() == ledger.total


def test_a_merge_and_a_change_of_the_schema(
    spark: SparkSession, cluster: LocalCluster, client: smq.Client, topic: str
) -> None:
    cluster.create(topic, schema=TYPED, key="carrier", flush=IN_MEMORY)
    write(client, topic, pa.table({"carrier": ["AA", "B", "C"] * 50, "delay": pa.array([1, None, 3] * 50, pa.int32())}))
    split(client, topic)
    write(client, topic, pa.table({"carrier": ["DD"] * 30, "delay": pa.array(range(30), pa.int32())}))
    client.admin().merge(topic, [s.name for s in client.admin().segments(topic)])
    eventually(lambda: [s.phase for s in client.admin().segments(topic)] == ["open"], what="the merge")
    wider = [TYPED[0], TYPED[1] | {"type": "int64"}, {"name": "note", "type": "string", "nullable": True}]
    client.admin().apply(manifest(topic, schema=wider, key="carrier", flush=IN_MEMORY))
    eventually(
        lambda: "note" in open_topic(topic, leader=cluster.address).chunk_schema.names, what="the schema has changed"
    )
    with cluster.connect() as newer:
        write(newer, topic, pa.table({"carrier": ["EE"] * 20, "delay": [1 << 40] * 20, "note": ["n"] * 20}))
    found = collected(load(spark, cluster, topic))
    assert found.equals(consumed(client, topic, 200))
    assert found.column("note").null_count == 180 and found.schema.field("delay").type == pa.int64()


def test_references(spark: SparkSession, cluster: LocalCluster, client: smq.Client, topic: str) -> None:
    cluster.create(topic, flush=IN_MEMORY)
    rows = pa.table({"key": [b"k%d" % (n % 50) for n in range(2000)], "value": [b"v%d" % n for n in range(2000)]})
    client.publish_atomically(topic, app="a", version=1, table=rows, key="key")
    write(client, topic, rows.slice(0, 10))
    assert collected(load(spark, cluster, topic)).equals(consumed(client, topic, 2010))
    roll(client, topic)
    client.publish_atomically(topic, app="a", version=2, table=rows, key="key")
    assert collected(load(spark, cluster, topic, minPartitions="4")).equals(consumed(client, topic, 4010))


def test_positions_and_ranges_are_exact(
    spark: SparkSession, cluster: LocalCluster, client: smq.Client, topic: str
) -> None:
    cluster.create(topic, flush={"bytes": "16Ki", "interval": "1h"})
    ledger = MessageLedger()
    send(client, topic, ledger, 500)
    first = roll(client, topic)
    send(client, topic, ledger, 500)
    (second,) = (s.name for s in client.admin().segments(topic))

    def places(**options: str) -> list[tuple[str, int]]:
        table = collected(load(spark, cluster, topic, columns="_segment,_offset", **options))
        return list(zip(*(table.column(name).to_pylist() for name in ("_segment", "_offset")), strict=True))

    def of(name: str, start: int, stop: int) -> list[tuple[str, int]]:
        return [(name, n) for n in range(start, stop)]

    assert places(startingPosition=json.dumps({first: 120})) == of(first, 120, 500) + of(second, 0, 500)
    assert places(startingPosition=json.dumps({second: 499})) == of(second, 499, 500)
    assert places(endingPosition=json.dumps({second: 3})) == of(first, 0, 500) + of(second, 0, 3)
    ranges = {second: [[1, 2], [7, 9]], first: [[499, 500]]}
    assert places(ranges=json.dumps(ranges)) == of(first, 499, 500) + of(second, 1, 2) + of(second, 7, 9)
    assert places(ranges="{}") == []
    assert places(startingPosition="latest") == []


@pytest.mark.slow
def test_times_are_exact(spark: SparkSession, cluster: LocalCluster, client: smq.Client, topic: str) -> None:
    cluster.create(topic, flush=IN_MEMORY)
    for number in range(6):
        with client.producer(topic) as producer:
            producer.send(b"%d" % number).result()
        if number == 2:
            roll(client, topic)
        time.sleep(0.01)
    everything = collected(load(spark, cluster, topic)).sort_by("appended")
    times = everything.column("appended").to_pylist()
    assert len(set(times)) == 6

    def values(**options: str) -> list[bytes]:
        return sorted(
            collected(load(spark, cluster, topic, columns="value,_segment,_offset", **options))[0].to_pylist()
        )

    for at in range(6):
        text = times[at].astimezone(UTC).isoformat()
        assert values(startingTimestamp=text) == [b"%d" % n for n in range(at, 6)], "inclusive"
        assert values(endingTimestamp=text) == [b"%d" % n for n in range(at)], "exclusive"


def test_two_runs_of_one_plan_give_the_same_rows(
    spark: SparkSession, cluster: LocalCluster, client: smq.Client, topic: str
) -> None:
    cluster.create(topic, flush=IN_MEMORY)
    ledger = MessageLedger()
    send(client, topic, ledger, 300)
    frame = load(spark, cluster, topic)
    before = frame.collect()
    send(client, topic, ledger, 300)
    roll(client, topic)
    again = frame.collect()
    assert len(before) == 300 and sorted(again) == sorted(before)


def test_a_read_is_pinned(spark: SparkSession, cluster: LocalCluster, client: smq.Client, topic: str) -> None:
    cluster.create(topic)
    send(client, topic, MessageLedger(), 10)
    assert load(spark, cluster, topic).count() == 10
    location = open_topic(topic, leader=cluster.address).location
    (pin,) = list_pins(location.open_store(), location.topic, location.uid)
    assert pin.pin.owner == "Spark batch read" and pin.pin.created_at is not None, "no task has renewed it"


@pytest.mark.slow
def test_pushed_filters_leave_out_files_and_keep_the_rows(
    spark: SparkSession, cluster: LocalCluster, client: smq.Client, topic: str
) -> None:
    cluster.create(topic, schema=TYPED, key="carrier", flush=IN_MEMORY)
    write(client, topic, pa.table({"carrier": ["AA"] * 20, "delay": pa.array(range(20), pa.int32())}))
    roll(client, topic)
    write(client, topic, pa.table({"carrier": ["ZZ"] * 20, "delay": pa.array(range(20), pa.int32())}))
    roll(client, topic)
    location = open_topic(topic, leader=cluster.address).location
    eventually(lambda: all(e.file_list for e in load_state(location).index.entries), what="the file lists")
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        small = load(spark, cluster, topic, pushFilters="true", maxPartitionBytes="1")
        assert small.rdd.getNumPartitions() == 40
        assert small.where("carrier = 'AA'").rdd.getNumPartitions() == 20
        frame = load(spark, cluster, topic, pushFilters="true")
        assert frame.where("carrier = 'AA'").count() == 20
        assert frame.where("carrier in ('ZZ', 'ZY') and delay > 4").count() == 15
        soon = datetime.now(UTC).isoformat()
        assert frame.where(f"appended > timestamp '{soon}'").count() == 0
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_files_only(spark: SparkSession, cluster: LocalCluster, client: smq.Client, topic: str) -> None:
    cluster.create(topic, flush={"bytes": "4Ki", "interval": "100ms"})
    ledger = MessageLedger()
    send(client, topic, ledger, 1000)
    split(client, topic)
    send(client, topic, ledger, 500)
    wait_for_files(client, topic, ledger.total)
    filer = {"filer": cluster.store.url, "filerEndpoint": str(cluster.store.endpoint), "filesOnly": "true"}
    frame = spark.read.format("smq").options(topic=topic, **filer).load()
    assert collected(frame).equals(consumed(client, topic, ledger.total))


@pytest.mark.slow
def test_what_was_lost_fails_the_plan_unless_it_is_allowed(
    spark: SparkSession, cluster: LocalCluster, client: smq.Client, topic: str
) -> None:
    cluster.create(topic, flush=IN_MEMORY)
    send(client, topic, MessageLedger(), 10)
    old = roll(client, topic)
    client.admin().apply(manifest(topic, flush=IN_MEMORY, retention={"age": "1s"}))
    eventually(lambda: old not in {s.name for s in client.admin().segments(topic, all=True)}, what="retention")
    send(client, topic, MessageLedger(), 5)
    assert load(spark, cluster, topic).count() == 5
    position = json.dumps({old: 3})
    fails(load(spark, cluster, topic, startingPosition=position), "DataLost.*retention has removed")
    fails(load(spark, cluster, topic, ranges=json.dumps({old: [[3, 7]]})), "DataLost.*retention has removed")
    assert load(spark, cluster, topic, startingPosition=position, failOnDataLoss="false").count() == 5


def fails(frame: DataFrame, words: str) -> None:
    """The plan fails with these words."""
    with pytest.raises(Exception, match=f"(?s){words}") as raised:
        frame.collect()
    assert "Job aborted" not in str(raised.value), "a task failed, not the plan"


@pytest.mark.slow
def test_mistakes_are_errors_of_the_plan(
    spark: SparkSession, cluster: LocalCluster, client: smq.Client, topic: str
) -> None:
    cluster.create(topic)
    send(client, topic, MessageLedger(), 10)
    (name,) = (s.name for s in client.admin().segments(topic))
    fails(load(spark, cluster, topic, startingPosition=json.dumps({name: 11})), "InvalidOption.*past its end, 10")
    fails(load(spark, cluster, topic, endingPosition=json.dumps({name: 11})), "InvalidOption.*past its end, 10")
    fails(load(spark, cluster, topic, endingPosition='{"other-0-64-0": 1}'), "InvalidOption.*no such segment")
    fails(load(spark, cluster, topic, ranges='{"other-0-64-0": [[0, 1]]}'), "InvalidOption.*no segment")
    fails(load(spark, cluster, topic, ranges="{}", pin="gone"), "PinExpired")


@pytest.mark.slow
def test_positions_of_a_topic_that_was_created_again(
    spark: SparkSession, cluster: LocalCluster, client: smq.Client, topic: str
) -> None:
    cluster.create(topic)
    send(client, topic, MessageLedger(), 10)
    (name,) = (s.name for s in client.admin().segments(topic))
    uid = open_topic(topic, leader=cluster.address).location.uid
    client.admin().delete(topic)

    def exists_again() -> bool:
        client.admin().apply(manifest(topic))
        return open_topic(topic, leader=cluster.address).location.uid != uid

    eventually(exists_again, what="the topic exists again", pause=0.2)
    eventually(lambda: client.admin().segments(topic), what="its segments")
    fails(load(spark, cluster, topic, startingPosition=json.dumps({name: 10})), "InvalidOption.*of another topic")


def test_a_filer_that_is_away_or_refuses(spark: SparkSession, cluster: LocalCluster, topic: str) -> None:
    reader = spark.read.format("smq").options(topic=topic, filer=cluster.store.url)
    with pytest.raises(Exception, match="StoreUnavailable"):
        reader.options(filerEndpoint=f"http://127.0.0.1:{free_port()}").load()
    secret = "do-not-print-this"
    with pytest.raises(Exception) as raised:
        reader.options(
            filerEndpoint=str(cluster.store.endpoint), filerAccessKey="nobody", filerSecretKey=secret, topic="missing"
        ).load()
    assert secret not in str(raised.value)
