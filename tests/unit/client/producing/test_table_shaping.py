"""Tables are converted for the wire, and split into batches of a maximum size."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smq.producing.encoding.batch_encoder import BatchEncoder, split_rows, split_to_limit
from smq.producing.encoding.keys import KeylessPartitioner
from smq_core.errors import InvalidRequest, MessageTooLarge, SchemaMismatch
from smq_core.model.entities import Column, Topic, TopicSpec
from smq_core.model.keyspace import partition_of

RAW = BatchEncoder(Topic("default/t", "u", TopicSpec(partitions=64)))
TYPED = BatchEncoder(
    Topic(
        "default/t",
        "u",
        TopicSpec(partitions=64, key="id", schema=(Column("id", "int64"), Column("delay", "float64", nullable=True))),
    )
)


def encode(shaper: BatchEncoder, table: pa.Table, key: object = None) -> pa.RecordBatch:
    shaped, hashed = shaper.check(table, key)
    (part,) = split_rows(shaped, 1 << 20)
    batch, row_partitions = shaper.encode(part, hashed, 77, KeylessPartitioner(64, 0))
    assert batch.schema.equals(shaper.schema)
    assert batch.column("partition").to_pylist() == row_partitions.tolist()
    return batch


def test_missing_columns_are_filled() -> None:
    batch = encode(RAW, pa.table({"value": [b"x", b"y"]}))
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [77, 77]
    assert batch.column("key").to_pylist() == [None, None]
    assert batch.column("headers").to_pylist() == [None, None]
    assert len(set(batch.column("partition").to_pylist())) == 1


def test_partitions_come_from_the_key() -> None:
    batch = encode(RAW, pa.table({"key": [b"a", b"b"], "value": [b"x", b"y"]}))
    assert batch.column("partition").to_pylist() == [partition_of(b"a", 64), partition_of(b"b", 64)]


def test_a_key_of_another_name_or_type_becomes_the_key_column() -> None:
    by_name = encode(RAW, pa.table({"tail": ["N1"], "value": [b"x"]}), "tail")
    by_array = encode(RAW, pa.table({"value": [b"x"]}), pa.array(["N1"]))
    assert by_name.column("key").to_pylist() == by_array.column("key").to_pylist() == [b"N1"]
    number = encode(RAW, pa.table({"id": [5], "value": [b"x"]}), "id")
    assert number.column("key").to_pylist() == [(5).to_bytes(8, "little")]


def test_types_that_fit_are_cast_and_nulls_in_timestamps_are_now() -> None:
    table = pa.table({"id": pa.array([5], pa.int8()), "delay": [1], "timestamp": pa.nulls(1, pa.timestamp("s"))})
    batch = encode(TYPED, table)
    assert batch.column("delay").to_pylist() == [1.0]
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [77]
    assert batch.column("partition").to_pylist() == [partition_of((5).to_bytes(8, "little"), 64)]


@pytest.mark.parametrize(
    ("shaper", "table", "key", "error", "says"),
    [
        (RAW, pa.table({"speed": [1]}), None, SchemaMismatch, "no column speed"),
        (RAW, pa.table({"value": [1.5]}), None, SchemaMismatch, "value, row 0: 1.5 .double. does not fit binary"),
        (RAW, pa.table({"value": [b"x"]}), "tail", InvalidRequest, "no column 'tail'"),
        (RAW, pa.table({"key": [b"x"], "tail": [b"y"]}), "tail", InvalidRequest, "column named key"),
        (RAW, pa.table({"value": [b"x"]}), pa.array([b"1", b"2"]), InvalidRequest, "2 values"),
        (RAW, pa.table({"value": [b"x"], "tail": [[1]]}), "tail", InvalidRequest, "cannot be a key"),
        (RAW, pa.table([[b"x"], [b"y"]], names=["value", "value"]), None, SchemaMismatch, "duplicate"),
        (TYPED, pa.table({"delay": [1.0]}), None, InvalidRequest, "no column 'id'"),
        (TYPED, pa.table({"id": [None]}), None, SchemaMismatch, "row 0: it may not be null"),
        (TYPED, pa.table({"id": [1], "value": [b"x"]}), None, SchemaMismatch, "no column value"),
        (
            TYPED,
            pa.table({"id": [1], "delay": ["late"]}),
            None,
            SchemaMismatch,
            "delay, row 0: 'late' .string. does not fit double: text is not a number",
        ),
        (TYPED, pa.table({"id": [1]}), "delay", InvalidRequest, "is its column 'id'"),
    ],
)
def test_what_does_not_fit_is_refused(
    shaper: BatchEncoder, table: pa.Table, key: object, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        shaper.check(table, key)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 300), max_size=60), st.integers(1, 2000), st.integers(1, 7))
def test_cut_to_size_keeps_every_row_in_order(sizes: list[int], target: int, chunks: int) -> None:
    values = [bytes([i % 256]) * size for i, size in enumerate(sizes)]
    step = -(-max(1, len(values)) // chunks)
    table = pa.table(
        {"value": pa.chunked_array([values[i : i + step] for i in range(0, len(values), step)], pa.binary())}
    )
    parts = list(split_rows(table, target))
    assert [v for part in parts for v in part.column("value").to_pylist()] == values
    assert all(part.num_rows for part in parts)


def test_a_table_is_cut_evenly() -> None:
    table = pa.table({"value": [b"x" * 1000] * 8388})
    rows = [part.num_rows for part in split_rows(table, 1 << 20)]
    assert len(rows) == 8
    assert max(rows) - min(rows) < 8


def test_many_small_chunks_become_few_batches() -> None:
    table = pa.table({"value": pa.chunked_array([[b"x" * 100]] * 1000)})
    assert len(list(split_rows(table, 50_000))) <= 3


def test_no_batch_exceeds_the_limit_and_a_row_that_does_is_named() -> None:
    batch = pa.record_batch({"value": [b"x" * size for size in (10, 900, 10, 10, 500, 500)]})
    parts = list(split_to_limit(batch, 1000))
    assert all(part.nbytes <= 1000 for part in parts)
    assert pa.Table.from_batches(parts).column("value").to_pylist() == batch.column("value").to_pylist()
    with pytest.raises(MessageTooLarge, match="limit of 100"):
        list(split_to_limit(batch, 100))
    with pytest.raises(MessageTooLarge):
        RAW.check_sizes(pa.table({"value": [b"x" * 900]}), 100)
