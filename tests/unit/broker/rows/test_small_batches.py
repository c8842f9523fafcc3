"""Messages in lists are the same messages as in an Arrow batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smq_broker.rows.batches import WireSchemas
from smq_broker.rows.blocks import ArrowBlock, Block
from smq_broker.rows.payloads import (
    Payload,
    batches_with_append_times,
    block_of,
    compact,
    rows_as_batch,
    split_block,
)
from smq_broker.rows.range_histogram import RangeHistogram
from smq_broker.rows.small_batches import MAX_PARTITION, SCHEMA, SmallBatch, read_small_batch
from smq_core.errors import InvalidRequest, SchemaMismatch
from smq_core.model.entities import Column
from smq_core.model.keyspace import KeyRange
from smq_core.replica.log_entries import BatchId, Entry, IncomingBatch
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import MAX_SMALL_BATCH_ROWS
from support.processes.broker import make_topic

EMPTY = WireSchemas.of(make_topic()).empty

# Partition, timestamp, key, value.
MESSAGE = st.tuples(
    st.integers(0, 1023), st.integers(-(1 << 63), (1 << 63) - 1), st.binary(max_size=3), st.binary(max_size=5)
)


def batch_of(messages: list[tuple[int, int, bytes, bytes]], has_keys: bool) -> SmallBatch:
    partitions, timestamps, keys, values = map(list, zip(*messages, strict=True))
    return SmallBatch(partitions, timestamps, keys if has_keys else [], values)  # type: ignore[arg-type]


BATCHES = st.builds(batch_of, st.lists(MESSAGE, min_size=1, max_size=5), st.booleans())


def as_arrow(batch: SmallBatch) -> pa.RecordBatch:
    """Made by Arrow's own functions."""
    rows = batch.num_rows
    columns = [batch.partitions, batch.timestamps, batch.keys or [None] * rows, batch.values, [None] * rows]
    return pa.RecordBatch.from_arrays(
        [pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def entries_of(blocks: Sequence[Block]) -> list[Entry]:
    """An entry for each row."""
    payloads = [payload for block in blocks for payload in split_block(block, [1] * block.num_rows)]
    return [
        Entry(
            first=number,
            batch=IncomingBatch(
                id=BatchId("p", 1, number), rows=1, nbytes=1, partition_min=0, partition_max=0, payload=payload
            ),
            appended=number // 2,
        )
        for number, payload in enumerate(payloads)
    ]


@given(batch=BATCHES)
def test_it_becomes_the_arrow_batch_with_the_same_rows(batch: SmallBatch) -> None:
    made = batch.to_arrow()
    made.validate(full=True)
    assert made == as_arrow(batch)


@given(batch=BATCHES, data=st.data())
def test_it_arrives_as_it_was_sent_and_can_be_sliced(batch: SmallBatch, data: st.DataObject) -> None:
    received = read_small_batch(pb.SmallBatch.FromString(sent(batch).SerializeToString()))
    assert received.to_arrow() == as_arrow(batch) and received.nbytes == batch.nbytes
    first = data.draw(st.integers(0, batch.num_rows - 1))
    rows = data.draw(st.integers(1, batch.num_rows - first))
    assert received.slice(first, rows).to_arrow() == as_arrow(batch).slice(first, rows)


@given(blocks=st.lists(st.tuples(BATCHES, st.booleans()), min_size=1, max_size=5), data=st.data())
def test_entries_have_the_same_rows_in_either_form(blocks: list[tuple[SmallBatch, bool]], data: st.DataObject) -> None:
    expected = pa.concat_batches([as_arrow(batch) for batch, _ in blocks])
    entries = entries_of([ArrowBlock(as_arrow(batch)) if is_arrow else batch for batch, is_arrow in blocks])
    skip = data.draw(st.integers(0, len(entries) - 1))
    assert rows_as_batch(entries, EMPTY, skip) == expected.slice(skip)
    parts = batches_with_append_times(entries)
    assert pa.concat_batches([part for part, _ in parts]) == expected
    few = entries[: data.draw(st.integers(1, len(entries)))]
    compact([(entry.batch.payload, 1) for entry in few])  # type: ignore[misc]
    assert len({id(entry.batch.payload.location[0]) for entry in few}) == 1  # type: ignore[attr-defined]
    assert rows_as_batch(entries, EMPTY) == expected


def sent(block: Block) -> pb.SmallBatch:
    message = block.to_pb()
    assert message is not None
    return message


def small(rows: int, *, keys: bool = True) -> SmallBatch:
    return SmallBatch([0] * rows, [5] * rows, [b"k"] * rows if keys else [], [b"v"] * rows)


def test_what_was_received_in_small_batches_is_sent_as_one() -> None:
    entries = entries_of([small(2), small(3)])
    assert sent(block_of(entries[1:], EMPTY)) == sent(small(4))


@pytest.mark.parametrize(
    "blocks",
    [
        [small(1), small(1, keys=False)],
        [small(1), ArrowBlock(small(1).to_arrow())],
        [ArrowBlock(small(1).to_arrow())],
        [small(MAX_SMALL_BATCH_ROWS), small(1)],
        [],
    ],
    ids=["some have no keys", "an Arrow batch beside it", "an Arrow batch", "too many rows", "nothing"],
)
def test_what_a_small_batch_cannot_have_is_sent_as_an_arrow_batch(blocks: list[Block]) -> None:
    block = block_of(entries_of(blocks), EMPTY)
    assert block.to_pb() is None
    assert block.to_arrow() == pa.concat_batches([EMPTY, *(it.to_arrow() for it in blocks)])


@pytest.mark.parametrize("missing", ["partitions", "timestamps", "keys", "values"])
def test_a_message_that_lacks_a_part_is_refused(missing: str) -> None:
    message = sent(small(2))
    getattr(message, missing).pop()
    with pytest.raises(InvalidRequest, match="one of each for every message"):
        read_small_batch(message)


def test_a_partition_that_arrow_cannot_hold_is_refused() -> None:
    read_small_batch(pb.SmallBatch(partitions=[MAX_PARTITION], timestamps=[0], values=[b""])).to_arrow()
    with pytest.raises(InvalidRequest, match="partition above"):
        read_small_batch(pb.SmallBatch(partitions=[MAX_PARTITION + 1], timestamps=[0], values=[b""]))


def test_a_topic_with_a_schema_takes_none() -> None:
    wire = WireSchemas.of(make_topic(schema=(Column("name", "string"),)))
    with pytest.raises(SchemaMismatch, match="send an Arrow batch"):
        small(1).accept(wire, True)
    wire, batch = WireSchemas.of(make_topic()), small(1)
    assert batch.accept(wire, True) is batch


def test_large_rows_become_arrow_at_once() -> None:
    """As lists they would never be joined with others, and take more memory than is counted."""
    large = SmallBatch([0] * 64, [5] * 64, [], [bytes(1024)] * 64)
    kept = large.accept(WireSchemas.of(make_topic()), True)
    assert isinstance(kept, ArrowBlock) and kept.batch == as_arrow(large)


def test_too_many_messages_are_refused() -> None:
    full = sent(small(MAX_SMALL_BATCH_ROWS))
    read_small_batch(full)
    full.MergeFrom(sent(small(1)))
    with pytest.raises(InvalidRequest, match="at most 256 are accepted"):
        read_small_batch(full)


def test_its_size_is_about_what_arrow_would_hold() -> None:
    batch = SmallBatch([1] * 50, [5] * 50, [b"key"] * 50, [b"x" * 200] * 50)
    assert batch.nbytes == pytest.approx(ArrowBlock(batch.to_arrow()).nbytes, rel=0.05)
    assert batch.join([batch, batch])[0].nbytes == 2 * batch.nbytes


def test_its_partitions_are_counted() -> None:
    histogram = RangeHistogram(KeyRange(100, 228))
    batch = SmallBatch([5, 100, 227, 101], [0] * 4, [], [b""] * 4)
    low, high = batch.partition_bounds(1, 3)
    assert (low, high) == (100, 227)
    id_ = BatchId("p", 1, 0)
    histogram.count(
        batch, 1, IncomingBatch(id=id_, rows=3, nbytes=1, partition_min=low, partition_max=high, payload=None)
    )
    assert histogram.slices[0] == 2 and histogram.slices[-1] == 1 and sum(histogram.slices) == 3


@given(BATCHES)
def test_messages_of_each_partition_are_counted_alike_in_both_forms(batch: SmallBatch) -> None:
    expected = tuple(sorted(Counter(batch.partitions[1:]).items()))
    if expected:
        rows = batch.num_rows - 1
        assert batch.partition_rows(1, rows) == ArrowBlock(as_arrow(batch)).partition_rows(1, rows) == expected


def test_a_block_is_not_copied_for_its_entries() -> None:
    block = small(3)
    assert [payload.location for payload in split_block(block, [2, 1])] == [(block, 0), (block, 2)]
    assert Payload(block).location == (block, 0)
