"""Every type of columns comes back as it was sent, from a broker's memory and from the files of a sealed segment."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal

import pyarrow as pa
import pytest

import smq
from smq_storage.chunks.column_types import arrow_type
from support.data.message_ledger import read_back
from support.processes.local_cluster import LocalCluster
from support.waiting import HANG_GUARD, eventually

pytestmark = pytest.mark.integration

VALUES: dict[str, object] = {
    "date": date(2024, 5, 1),
    "time": time(12, 30, 0, 1),
    "time32[s]": time(12, 30),
    "timestamp[s]": datetime(2024, 5, 1, 12),
    "timestamp[ms, Europe/Berlin]": datetime(2024, 5, 1, 12, tzinfo=UTC),
    "timestamp[ns, UTC]": datetime(2024, 5, 1, 12, tzinfo=UTC),
    "decimal256(50, 2)": Decimal(10**40) + Decimal("0.25"),
    "dictionary<string>": "a",
    "list<dictionary<binary>>": [b"\xff", None],
    "struct<x: int8, y: timestamp[s]>": {"x": 1, "y": datetime(2024, 5, 1)},
    "map<string, list<int8>>": [("a", [1, None]), ("b", None)],
}
TYPES = [*VALUES]
COLUMNS = [
    {"name": "id", "type": "string"},
    *({"name": f"c{n}", "type": t, "nullable": True} for n, t in enumerate(TYPES)),
]
ROW = {"id": "full", **{f"c{n}": VALUES[name] for n, name in enumerate(TYPES)}}
EMPTY = {"id": "empty", **dict.fromkeys(list(ROW)[1:])}


def test_every_type_comes_back_as_it_was_sent(cluster: LocalCluster, client: smq.Client, topic: str) -> None:
    cluster.create(topic, key="id", schema=COLUMNS, segments={"min": 1, "max": 2})
    arrow_schema = pa.schema([("id", pa.string()), *((f"c{n}", arrow_type(name)) for n, name in enumerate(TYPES))])
    with client.producer(topic) as producer:
        producer.send(ROW).result(HANG_GUARD)
        producer.write(pa.Table.from_pylist([ROW, EMPTY], arrow_schema)).result(HANG_GUARD)
        with pytest.raises(smq.SchemaMismatch, match=r"column c0: .* does not fit date32"):
            producer.send(ROW | {"c0": "2024-05-01"})

    def check() -> None:
        for options in ({}, {"schema": "own"}):
            with client.consumer(topic, start="earliest", **options) as consumer:  # type: ignore[arg-type]
                batches = read_back(consumer, 3)
            table = pa.concat_tables([batch.table for batch in batches])
            assert table.select(arrow_schema.names).schema.types == arrow_schema.types
            assert [message.value for batch in batches for message in batch] == [ROW, ROW, EMPTY]

    check()
    (segment,) = client.admin().segments(topic)
    client.admin().split(topic, segment.name)
    eventually(lambda: [s for s in client.admin().segments(topic, all=True) if s.phase == "sealed"])
    check()


def test_frames_and_tables_that_were_read_can_be_written_again(
    cluster: LocalCluster, client: smq.Client, topic: str
) -> None:
    cluster.create(topic, key="id", schema=COLUMNS)
    with client.producer(topic) as producer:
        producer.send(ROW).result(HANG_GUARD)
        with client.consumer(topic, start="earliest") as consumer:
            (first,) = read_back(consumer, 1)
            producer.write(first.table).result(HANG_GUARD)
            (again,) = read_back(consumer, 1)

    assert [message.value for message in again] == [ROW]
