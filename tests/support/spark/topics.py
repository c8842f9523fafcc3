"""Topics as the project's own client reads them, for comparison with what Spark reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

import smq
from pyspark_smq.spark_types import arrow_schema, dataframe_columns, to_spark_batches
from support.data.message_ledger import read_back
from support.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PLACE = [("_segment", "ascending"), ("_offset", "ascending")]


def consumed(client: smq.Client, topic: str, count: int) -> pa.Table:
    """All messages of a topic with ``count`` of them, with Spark's columns and types, ordered by segment and offset."""
    with client.consumer(topic) as consumer:
        batches = read_back(consumer, count)
    schema = arrow_schema(dataframe_columns(batches[-1].table.schema))
    parts = [
        part for batch in batches for part in to_spark_batches(batch.table, batch.first_offset, batch.segment, schema)
    ]
    return pa.Table.from_batches(parts, schema).sort_by(PLACE)


def collected(frame: DataFrame) -> pa.Table:
    """The rows of a DataFrame with the places of its messages, in the same form."""
    schema = pa.schema([field.with_nullable(True) for field in arrow_schema(frame.schema)])
    return frame.toArrow().cast(schema).sort_by(PLACE)


def wait_for_files(client: smq.Client, topic: str, count: int) -> None:
    """Waits until all ``count`` messages of a topic are in files."""

    def in_files() -> int:
        sealed = {s.name: s.end or 0 for s in client.admin().segments(topic, all=True) if s.phase == "sealed"}
        loads = [s for broker in client.admin().brokers() for s in broker.segments if s.primary]
        living = {s.segment: s.chain_end for s in loads if s.topic == client_topic and s.segment not in sealed}
        return sum(sealed.values()) + sum(living.values())

    client_topic = client.admin().topic(topic).name
    eventually(lambda: in_files() == count, what=f"all messages of {topic} are in files", pause=0.2)


def split(client: smq.Client, topic: str) -> None:
    """Splits the only segment, and waits for its successors."""
    (segment,) = client.admin().segments(topic)
    client.admin().split(topic, segment.name)
    eventually(lambda: len([s for s in client.admin().segments(topic) if s.phase == "open"]) == 2, what="the split")


def roll(client: smq.Client, topic: str) -> str:
    """Rolls the only segment, and waits until it is sealed. Returns its name."""
    admin = client.admin()
    (segment,) = admin.segments(topic)
    admin.roll(topic, segment.name)

    def rolled() -> bool:
        left = segment.name not in {s.name for s in admin.segments(topic)}
        return left and {s.name: s.phase for s in admin.segments(topic, all=True)}.get(segment.name) == "sealed"

    eventually(rolled, what="the roll")
    return segment.name
