"""Which columns a reader gets when the topic's schema has changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

import pyarrow as pa
import pytest

from smq.consumer import Consumer
from smq.consuming.consumer_options import ConsumerOptions
from smq.consuming.fetching import open_fetchers
from smq.consuming.fetching.fetch_plan import FetchPlan
from smq.consuming.fetching.prefetch_buffer import FetchedRows, PrefetchBuffer
from smq.consuming.newest_schema import NewestSchema
from smq.reading.tail_stream import with_append_times
from smq.transport.topic_view import TopicSnapshot
from smq_core.model.entities import Column, Layout, Topic, TopicSchema, TopicSpec
from smq_core.model.schema_evolution import evolve
from smq_storage.chunks.column_types import arrow_type
from smq_storage.chunks.schemas import TIMESTAMP, chunk_schema, message_schema
from support.in_memory.topic import TopicInMemory

ID, NOTE, GATE = Column("id", "int32"), Column("note", "string", nullable=True), Column("gate", "uint8", nullable=True)
WIDE = Column("id", "int64", nullable=True)
V0 = TopicSchema(0, (ID, NOTE))
V1 = evolve(V0, (WIDE, NOTE, GATE), None)
V2 = evolve(V1, (WIDE, GATE), None)


def rows(schema: TopicSchema, **values: list[Any]) -> pa.Table:
    """Rows as a fetcher reads them; the offsets count from 0."""
    count = len(next(iter(values.values())))
    body = [pa.array(values.get(c.name, [None] * count), arrow_type(c.type)) for c in schema.columns]
    times = pa.array([0] * count).cast(TIMESTAMP)
    headers = pa.nulls(count, message_schema().field("headers").type)
    columns = [pa.array([0] * count, pa.int32()), times, times, *body, headers]
    return pa.Table.from_arrays(columns, schema=chunk_schema(schema.columns))


def snapshot(*schemas: TopicSchema) -> TopicSnapshot:
    topic = Topic("default/t", "uid", TopicSpec(partitions=8, schema=V0.columns))
    return TopicSnapshot(topic, Layout(topic="default/t", uid="uid", partitions=8, schemas=schemas))


def test_old_rows_get_the_newest_columns() -> None:
    made = NewestSchema().convert(rows(V0, id=[1, 2], note=["a", None]), snapshot(V0, V1))
    assert made.schema.equals(chunk_schema(V1.columns))
    assert made.select(["id", "note", "gate"]).to_pylist() == [
        {"id": 1, "note": "a", "gate": None},
        {"id": 2, "note": None, "gate": None},
    ]


def test_a_dropped_column_is_left_out() -> None:
    made = NewestSchema().convert(rows(V0, id=[1], note=["a"]), snapshot(V0, V1, V2))
    assert made.schema.equals(chunk_schema(V2.columns))


@pytest.mark.parametrize("schema", [V1, replace(V1, columns=(WIDE, NOTE)), replace(V1, columns=(ID, NOTE, GATE))])
def test_rows_of_a_newer_schema_stay_as_they_are(schema: TopicSchema) -> None:
    """The snapshot may be older than what a fetcher reads."""
    table = rows(schema, id=[1])
    assert NewestSchema().convert(table, snapshot(V0)) is table


def test_a_topic_of_a_former_release_has_the_schema_of_its_spec() -> None:
    table = rows(V0, id=[1])
    assert NewestSchema().convert(table, snapshot()) is table


def test_the_tail_has_the_columns_of_its_own_batches() -> None:
    wanted = rows(V1, id=[1, 2], gate=[3, None])
    (batch,) = wanted.drop_columns(["appended"]).to_batches()
    table = with_append_times(batch, [1, 1], [5, 6])
    assert table.schema.equals(chunk_schema(V1.columns))
    assert table.column("appended").cast(pa.int64()).to_pylist() == [5, 6]


class Readers:
    """A topic with the first schema, and what one consumer of it has read ahead."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.view = TopicInMemory()
        self.view.snapshot = snapshot(V0)
        self.view.topic = self.view.snapshot.topic
        self.view.set_layout([self.view.first])
        self.fetchers: list[ReadAhead] = []
        monkeypatch.setattr(open_fetchers, "Fetcher", self._fetcher)

    def _fetcher(self, *, buffer: PrefetchBuffer[Any], fetch_plan: FetchPlan, **_: object) -> ReadAhead:
        self.fetchers.append(ReadAhead(fetch_plan, buffer))
        return self.fetchers[-1]

    def change(self, *schemas: TopicSchema) -> None:
        self.view.snapshot = replace(self.view.snapshot, layout=replace(self.view.snapshot.layout, schemas=schemas))
        self.view.set_layout([self.view.first])

    def open(self, schema: Literal["newest", "own"]) -> Consumer:
        return Consumer(
            view=self.view,  # type: ignore[arg-type]
            groups=None,  # type: ignore[arg-type]
            options=ConsumerOptions(schema=schema, max_bytes=1, prefetch_bytes=1 << 20),
        )


class ReadAhead:
    """In place of a fetcher: has read three messages of the first schema."""

    alive = watermark_known = False
    watermark = 0

    def __init__(self, plan: FetchPlan, buffer: PrefetchBuffer[Any]) -> None:
        self.segment = plan.segment
        self._buffer = buffer
        buffer.open(self)
        for first in range(3):
            buffer.put(self, FetchedRows(rows(V0, id=[first], note=["a"]), first, 8))

    def stop(self) -> None:
        self._buffer.drop(self)

    def may_end(self) -> bool:
        return False

    def check_liveness(self, now: float) -> None: ...

    def join(self, timeout: float) -> None: ...


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Readers]:
    yield Readers(monkeypatch)


def names(consumer: Consumer) -> list[str]:
    batch = consumer.poll(5)
    assert batch is not None
    return [n for n in batch.table.column_names if n in ("id", "note", "gate")]


def test_a_change_while_a_consumer_runs_holds_from_the_next_batch_on(readers: Readers) -> None:
    """Also for what was read ahead before."""
    with readers.open("newest") as consumer:
        assert names(consumer) == ["id", "note"]
        readers.change(V0, V1)
        assert names(consumer) == ["id", "note", "gate"]
        readers.change(V0, V1, V2)
        assert names(consumer) == ["id", "gate"]


def test_a_consumer_may_get_the_columns_with_which_messages_were_written(readers: Readers) -> None:
    with readers.open("own") as consumer:
        assert names(consumer) == ["id", "note"]
        readers.change(V0, V1, V2)
        assert names(consumer) == ["id", "note"]
