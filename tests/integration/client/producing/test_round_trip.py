"""Published messages are read back with the same bytes, columns, order and receipts, with real processes."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

import smq
from support.data.message_ledger import MessageLedger, check_deliveries, read_back
from support.processes.local_cluster import LocalCluster
from support.waiting import HANG_GUARD, eventually

pytestmark = pytest.mark.integration


def test_messages_come_back_as_they_were_sent(cluster: LocalCluster, client: smq.Client, topic: str) -> None:
    cluster.create(topic)
    at = datetime(2013, 1, 1, 5, 15, tzinfo=UTC)
    with client.producer(topic) as producer:
        first = producer.send(b"\x00payload\xff", key=b"N14228", headers={"trace": b"1", "none": None}, timestamp=at)
        second = producer.send(None, key=b"N14228")
        third = producer.send(b"")
        receipts = [d.result() for d in (first, second, third)]
    assert [r.offset for r in receipts] == [0, 1, 2]
    with client.consumer(topic) as consumer:
        batches = read_back(consumer, 3)
    table = pa.concat_tables([b.table for b in batches])
    assert table.column("value").to_pylist() == [b"\x00payload\xff", None, b""]
    assert table.column("key").to_pylist() == [b"N14228", b"N14228", None]
    assert table.column("timestamp").to_pylist()[0] == at
    assert table.column("headers").to_pylist() == [
        [{"key": "trace", "value": b"1"}, {"key": "none", "value": None}],
        None,
        None,
    ]
    assert {b.segment for b in batches} == {receipts[0].segment}


@pytest.mark.parametrize("segments", [1, 4])
def test_every_message_is_there_once_in_its_keys_order(
    cluster: LocalCluster, client: smq.Client, topic: str, segments: int
) -> None:
    cluster.create(topic, segments={"min": segments, "max": 8})
    ledger = MessageLedger()
    with client.producer(topic) as producer:
        ledger.send(producer, 20_000)
    with client.consumer(topic) as consumer:
        batches = read_back(consumer, ledger.total)
    check_deliveries(ledger, batches)
    assert len({b.segment for b in batches}) == segments


def test_messages_of_one_call_come_back_with_a_receipt_for_each(
    cluster: LocalCluster, client: smq.Client, topic: str
) -> None:
    cluster.create(topic, segments={"min": 4, "max": 8})
    keys = [b"key-%d" % (i % 50) for i in range(20_000)]
    values = [b"%d" % i for i in range(20_000)]
    values[7] = b"large" * 50_000
    with client.producer(topic, batch_bytes=50_000, max_inline_bytes=64 << 10) as producer:
        receipt = producer.send_many(values, keys).result()
    assert len(receipt) == 20_000
    with client.consumer(topic) as consumer:
        batches = read_back(consumer, 20_000)
    found = {
        (batch.segment, batch.first_offset + row): message
        for batch in batches
        for row, message in enumerate(
            zip(batch.table.column("value").to_pylist(), batch.table.column("key").to_pylist(), strict=True)
        )
    }
    assert found == {tuple(receipt[i]): (values[i], keys[i]) for i in range(20_000)}


@pytest.mark.parametrize("segments", [1, 4])
def test_a_table_comes_back_whole_with_a_receipt_for_each_row(
    cluster: LocalCluster, client: smq.Client, topic: str, segments: int
) -> None:
    cluster.create(topic, segments={"min": segments, "max": 8})
    keys = [b"key-%d" % (i % 50) for i in range(30_000)]
    values = [b"%d" % i for i in range(30_000)]
    table = pa.table({"tail": pa.array(keys, pa.binary()), "value": pa.array(values, pa.large_binary())})
    with client.producer(topic, batch_bytes=50_000) as producer:
        receipt = producer.write(table, key="tail").result()
    assert len(receipt) == 30_000
    with client.consumer(topic) as consumer:
        batches = read_back(consumer, 30_000)
    found = {
        (b.segment, b.first_offset + i): (key, value)
        for b in batches
        for i, (key, value) in enumerate(
            zip(b.table.column("key").to_pylist(), b.table.column("value").to_pylist(), strict=True)
        )
    }
    assert len(found) == 30_000
    for row in range(0, 30_000, 7):
        one = receipt[row]
        assert one.offset is not None
        assert found[one.segment, one.offset] == (keys[row], values[row])


def test_typed_columns_are_published_and_read(cluster: LocalCluster, client: smq.Client, topic: str) -> None:
    cluster.create(
        topic,
        key="tailnum",
        schema=[
            {"name": "tailnum", "type": "string"},
            {"name": "dep_delay", "type": "float64", "nullable": True},
        ],
    )
    with client.producer(topic) as producer:
        producer.send({"tailnum": "N14228", "dep_delay": 2.5})
        producer.send({"tailnum": "N24211"}).result()
        producer.write(pa.table({"tailnum": ["N619AA"], "dep_delay": pa.array([-1], pa.int32())})).result()
    with client.consumer(topic) as consumer:
        batches = read_back(consumer, 3)
    rows = pa.concat_tables([b.table for b in batches]).select(["tailnum", "dep_delay"]).to_pylist()
    assert rows == [
        {"tailnum": "N14228", "dep_delay": 2.5},
        {"tailnum": "N24211", "dep_delay": None},
        {"tailnum": "N619AA", "dep_delay": -1.0},
    ]


def test_a_table_that_was_read_can_be_written_again(cluster: LocalCluster, client: smq.Client, topic: str) -> None:
    cluster.create(topic)
    with client.producer(topic) as producer, client.consumer(topic) as consumer:
        producer.send(b"x", key=b"k", headers=[("h", b"1")]).result()
        (batch,) = read_back(consumer, 1)
        producer.write(batch.table).result()
        (again,) = read_back(consumer, 1)
    same = ["partition", "timestamp", "key", "value", "headers"]
    assert again.table.select(same).equals(batch.table.select(same))


def test_a_consumer_goes_on_from_the_positions_of_a_batch(
    cluster: LocalCluster, client: smq.Client, topic: str
) -> None:
    cluster.create(topic)
    with client.producer(topic) as producer:
        producer.write(pa.table({"value": [b"%d" % i for i in range(100)]})).result()
    with client.consumer(topic, max_bytes=1000) as consumer:
        first = consumer.poll(HANG_GUARD)
    assert first is not None and len(first) < 100
    with client.consumer(topic, start=first.positions) as consumer:
        rest = read_back(consumer, 100 - len(first))
    values = [v for b in [first, *rest] for v in b.table.column("value").to_pylist()]
    assert values == [b"%d" % i for i in range(100)]


def test_latest_sees_only_what_comes_after(cluster: LocalCluster, client: smq.Client, topic: str) -> None:
    cluster.create(topic)
    with client.producer(topic) as producer:
        producer.send(b"before").result()
        with client.consumer(topic, start="latest") as consumer:
            producer.send(b"after").result()
            batches = read_back(consumer, 1)
    assert [b.table.column("value").to_pylist() for b in batches] == [[b"after"]]


def test_a_time_to_start_from(cluster: LocalCluster, client: smq.Client, topic: str) -> None:
    cluster.create(topic)
    with client.producer(topic) as producer:
        producer.send(b"before").result()
        with client.consumer(topic) as consumer:
            (early,) = read_back(consumer, 1)
        appended = early.table.column("appended").to_pylist()[0]
        # Append times are microseconds of the broker's clock: wait until it has gone on.
        eventually(lambda: datetime.now(UTC) > appended)
        producer.send(b"after").result()
    with client.consumer(topic, start=appended.replace(microsecond=appended.microsecond)) as consumer:
        both = read_back(consumer, 2)
    assert sum(len(b) for b in both) == 2
    with client.consumer(topic, start=datetime.fromtimestamp(appended.timestamp() + 1e-6, UTC)) as consumer:
        batches = read_back(consumer, 1)
    assert [v for b in batches for v in b.table.column("value").to_pylist()] == [b"after"]


def test_a_consumer_knows_when_it_is_at_the_end(cluster: LocalCluster, client: smq.Client, topic: str) -> None:
    cluster.create(topic)
    with client.producer(topic) as producer, client.consumer(topic) as consumer:
        eventually(consumer.at_end)
        producer.send(b"x").result()
        assert len(read_back(consumer, 1)) == 1
        eventually(consumer.at_end)
