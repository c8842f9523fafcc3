"""Entries read the same rows from whichever shared block holds them."""

import pyarrow as pa
import pytest

from smq_broker.rows.batches import WireSchemas
from smq_broker.rows.blocks import ArrowBlock
from smq_broker.rows.payloads import (
    BLOCKS_PER_COMPACTION,
    JOIN_BYTES,
    Compactor,
    Payload,
    batches_with_append_times,
    compact,
    rows_as_batch,
    split_block,
)
from smq_broker.rows.range_histogram import RangeHistogram
from smq_core.errors import SchemaMismatch
from smq_core.model.keyspace import KeyRange
from smq_core.replica.log_entries import BatchId, Entry, IncomingBatch
from smq_storage.chunks.schemas import TIMESTAMP, message_schema
from support.data.raw_flight import rows, rows_of_size
from support.processes.broker import make_topic

EMPTY = WireSchemas.of(make_topic()).empty


def incoming(count: int, low: int, high: int) -> IncomingBatch:
    id_ = BatchId("p", 1, 0)
    return IncomingBatch(id=id_, rows=count, nbytes=1, partition_min=low, partition_max=high, payload=None)


def entry(first: int, payload: Payload, count: int, appended: int = 0) -> Entry:
    return Entry(
        first=first,
        batch=IncomingBatch(
            id=BatchId("p", 1, first), rows=count, nbytes=1, partition_min=0, partition_max=0, payload=payload
        ),
        appended=appended,
    )


def values(batch: pa.RecordBatch) -> list[bytes]:
    return batch.column("value").to_pylist()


def test_compaction_changes_where_rows_lie_and_nothing_else():
    compactor = Compactor()
    entries = []
    done = 0
    for number in range(BLOCKS_PER_COMPACTION + 10):
        payload = Payload(ArrowBlock(rows([b"%d-%d" % (number, i) for i in range(1 + number % 3)])))
        entries.append(entry(number, payload, 1 + number % 3, appended=number // 5))
        full = compactor.add([(payload, 1 + number % 3)])
        if full is not None:
            compact(full)
            done += 1
    assert done == 1
    assert len({id(e.batch.payload.location[0]) for e in entries}) == 1 + 10
    expected = [b"%d-%d" % (n, i) for n in range(BLOCKS_PER_COMPACTION + 10) for i in range(1 + n % 3)]
    assert values(rows_as_batch(entries, EMPTY)) == expected
    assert values(rows_as_batch(entries, EMPTY, skip=7)) == expected[7:]
    times: list[int] = []
    for part, when in batches_with_append_times(entries):
        times += [when] * part.num_rows if isinstance(when, int) else when.cast(pa.int64()).to_pylist()
    assert times == [n // 5 for n in range(BLOCKS_PER_COMPACTION + 10) for _ in range(1 + n % 3)]


def test_neighbours_in_one_block_are_not_copied():
    block = rows_of_size(100, 1000)
    entries = [entry(10 * i, p, 10) for i, p in enumerate(split_block(ArrowBlock(block), [10] * 10))]
    assert rows_as_batch(entries, EMPTY) is block
    part = rows_as_batch(entries[2:5], EMPTY)
    assert part.num_rows == 30 and part.get_total_buffer_size() == block.get_total_buffer_size()
    assert [(b.num_rows, t) for b, t in batches_with_append_times(entries)] == [(100, 0)]


def test_small_blocks_become_one_batch_of_a_chunk():
    entries = [entry(n, Payload(ArrowBlock(rows([b"%d" % n]))), 1, appended=n // 2) for n in range(200)]
    ((part, times),) = batches_with_append_times(entries)
    assert values(part) == [b"%d" % n for n in range(200)]
    assert times.cast(pa.int64()).to_pylist() == [n // 2 for n in range(200)]


def test_large_blocks_are_not_copied_for_a_chunk():
    large = [rows_of_size(1, JOIN_BYTES) for _ in range(2)]
    blocks = [rows([b"a"]), rows([b"b"]), large[0], large[1], rows([b"c"])]
    entries = [entry(n, Payload(ArrowBlock(block)), 1) for n, block in enumerate(blocks)]
    parts = [part for part, _ in batches_with_append_times(entries)]
    assert [part.num_rows for part in parts] == [2, 1, 1, 1]
    assert parts[1] is large[0] and parts[2] is large[1]


def test_one_time_per_row_only_when_they_differ():
    block = ArrowBlock(rows_of_size(4, 10))
    entries = [entry(i, p, 2, appended=1000 + i) for i, p in enumerate(split_block(block, [2, 2]))]
    ((part, times),) = batches_with_append_times(entries)
    assert part.num_rows == 4 and times.type == TIMESTAMP
    assert times.cast(pa.int64()).to_pylist() == [1000, 1000, 1001, 1001]


def test_small_batches_get_memory_of_their_own():
    wire = WireSchemas.of(make_topic())
    large, small = rows_of_size(100, 2000), rows_of_size(1, 100)
    kept = ArrowBlock(small).accept(wire, True).to_arrow()
    assert kept.equals(small)
    theirs = {b.address for column in small.columns for b in column.buffers() if b is not None}
    mine = {b.address for column in kept.columns for b in column.buffers() if b is not None and b.size}
    assert not mine & theirs
    assert ArrowBlock(large).accept(wire, True).to_arrow() is large
    part = ArrowBlock(large).slice(10, 20).accept(wire, True, large.nbytes * 2)
    assert part.nbytes < ArrowBlock(large).nbytes, "it does not keep the other rows"


def test_other_labels_are_replaced_and_other_types_refused():
    wire = WireSchemas.of(make_topic())
    lax = pa.schema([f.with_nullable(True) for f in message_schema()])
    assert wire.check_stream(message_schema()) is True
    assert wire.check_stream(lax) is False
    batch = pa.RecordBatch.from_arrays(rows_of_size(2, 10).columns, schema=lax)
    assert ArrowBlock(batch).accept(wire, False).to_arrow().schema.equals(message_schema())
    with pytest.raises(SchemaMismatch):
        wire.check_stream(pa.schema([("partition", pa.int64())]))


def test_the_histogram_has_every_message_in_the_slice_of_its_partition():
    histogram = RangeHistogram(KeyRange(100, 228))
    batch = pa.RecordBatch.from_arrays(
        [pa.array([100, 101, 102, 227], pa.int32()), *rows_of_size(4, 1).columns[1:]], schema=message_schema()
    )
    block = ArrowBlock(batch)
    histogram.count(block, 0, incoming(4, 100, 227))
    histogram.count(block, 3, incoming(1, 227, 227))
    assert len(histogram.slices) == 64
    assert {i: n for i, n in enumerate(histogram.slices) if n} == {0: 2, 1: 1, 63: 2}


def test_a_narrow_range_has_a_slice_for_each_partition():
    assert len(RangeHistogram(KeyRange(5, 8)).slices) == 3
