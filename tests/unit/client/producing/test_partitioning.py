"""Partitioning by segment: each row reaches the segment of its partition once and in order, also when routes change."""

from __future__ import annotations

import itertools
import threading
from array import array

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from smq.producing.batching.partitioning import RoutingTable, SubBatch, partition_by_segment
from smq.producing.batching.row_batch import RowBatch
from smq.producing.delivery_state import DeliveryState
from smq.producing.encoding.batch_encoder import BatchEncoder
from smq.producing.uploads.uploaded_rows import PartitionIndex, UploadedFile, UploadedRows
from smq_core.model.entities import Durability, Phase, Replica, Segment, Topic, TopicSpec
from smq_core.model.keyspace import KeyRange
from smq_core.producing.routes import Route

PARTITIONS = 16


def segment(start: int, stop: int, number: int = 0) -> Segment:
    replicas = (Replica("b", "i", "a:1"),)
    name = f"t-{start}-{stop}-{number}"
    return Segment(
        name=name,
        number=number,
        range=KeyRange(start, stop),
        phase=Phase.OPEN,
        durability=Durability.REPLICATED,
        replicas=replicas,
    )


def table_of(segments: list[Segment]) -> RoutingTable:
    return RoutingTable.of(Route.of(segments, PARTITIONS))


@st.composite
def full_layouts(draw: st.DrawFn, number: int = 0) -> list[Segment]:
    edges = sorted({0, PARTITIONS, *draw(st.lists(st.integers(1, PARTITIONS - 1), max_size=5))})
    return [segment(a, b, number) for a, b in itertools.pairwise(edges)]


def sub_batch_of(row_partitions: list[int]) -> SubBatch:
    batch = pa.record_batch(
        {"partition": pa.array(row_partitions, pa.int32()), "row": pa.array(range(len(row_partitions)))}
    )
    return SubBatch(
        batch=batch,
        delivery_state=DeliveryState(len(row_partitions), threading.Lock()),
        rows=None,
        cost=1000,
        created_at=0.0,
    )


@settings(max_examples=300, deadline=None)
@given(full_layouts(), full_layouts(1), st.lists(st.integers(0, PARTITIONS - 1), min_size=1, max_size=40))
def test_every_row_lands_once_in_its_segment_and_in_order_also_when_cut_again(
    first: list[Segment], second: list[Segment], row_partitions: list[int]
) -> None:
    whole = sub_batch_of(row_partitions)
    parts = partition_by_segment(whole, table_of(first), np.array(row_partitions, np.int32))
    again = [two for _, part in parts for two in partition_by_segment(part, table_of(second))]
    for cuts in (parts, again):
        rows: list[int] = []
        for target, part in cuts:
            own = part.batch.column("row").to_pylist()
            assert own == sorted(own), "the order within a segment is kept"
            assert own == (list(range(len(row_partitions))) if part.rows is None else part.rows.tolist())
            assert all(row_partitions[row] in target.range for row in own)
            rows += own
        assert sorted(rows) == list(range(len(row_partitions)))
        assert sum(part.cost for _, part in cuts) == 1000, "the budget gets back what was taken"


ENCODER = BatchEncoder(Topic("default/t", "u", TopicSpec(partitions=PARTITIONS)))


def rows_of(row_partitions: list[int]) -> SubBatch:
    """As :func:`sub_batch_of`, with rows that are not encoded yet; their values are their numbers."""
    count = len(row_partitions)
    rows = RowBatch(
        encoder=ENCODER,
        values=list(range(count)),
        keys=(),
        times=[0] * count,
        timestamps={},
        headers={},
        partitions=array("i", row_partitions),
    )
    return SubBatch(
        batch=rows, delivery_state=DeliveryState(count, threading.Lock()), rows=None, cost=1000, created_at=0.0
    )


@settings(max_examples=300, deadline=None)
@given(full_layouts(), full_layouts(1), st.lists(st.integers(0, PARTITIONS - 1), min_size=1, max_size=40))
def test_rows_that_are_not_encoded_yet_are_split_in_the_same_way(
    first: list[Segment], second: list[Segment], row_partitions: list[int]
) -> None:
    found: list[list[tuple[str, object]]] = []
    for whole in (rows_of(row_partitions), sub_batch_of(row_partitions)):
        parts = partition_by_segment(whole, table_of(first))
        again = [two for _, part in parts for two in partition_by_segment(part, table_of(second))]
        assert sum(part.cost for _, part in parts) == sum(part.cost for _, part in again) == 1000
        for _, part in again:
            rows = list(range(len(row_partitions))) if part.rows is None else part.rows.tolist()
            if isinstance(part.batch, RowBatch):
                assert list(part.batch.values) == rows
                assert list(part.batch.partitions) == [row_partitions[row] for row in rows]
        found.append(sorted((target.name, part.rows is None or part.rows.tolist()) for target, part in again))
    assert found[0] == found[1]


@settings(max_examples=300, deadline=None)
@given(full_layouts(), full_layouts(1), st.lists(st.integers(0, PARTITIONS - 1), min_size=1, max_size=40))
def test_an_upload_is_published_by_row_ranges_also_when_it_is_split_again(
    first: list[Segment], second: list[Segment], row_partitions: list[int]
) -> None:
    in_file = np.array(sorted(row_partitions), np.int32)
    file = UploadedFile(
        name="u.parquet",
        etag="e",
        size=1000,
        schema_version=0,
        index=PartitionIndex.of(in_file, np.arange(len(in_file))),
    )
    state = DeliveryState(len(file.index.partitions), threading.Lock())
    whole = SubBatch(batch=UploadedRows.all_of(file), delivery_state=state, rows=None, cost=1000, created_at=0.0)
    parts = partition_by_segment(whole, table_of(first))
    again = [two for _, part in parts for two in partition_by_segment(part, table_of(second))]
    for cuts in (parts, again):
        rows: list[int] = []
        outcomes: list[int] = []
        for target, part in cuts:
            assert isinstance(part.batch, UploadedRows)
            reference = part.batch.reference()
            own = in_file[reference.first_row : reference.stop_row]
            assert (reference.partition_min, reference.partition_max) == (own[0], own[-1])
            assert all(partition in target.range for partition in own)
            rows += range(reference.first_row, reference.stop_row)
            indices = range(len(file.index.partitions)) if part.rows is None else part.rows.tolist()
            assert [file.index.partitions[i] for i in indices] == sorted(set(own)), "the receipt is of these partitions"
            outcomes += indices
        assert rows == list(range(len(in_file)))
        assert outcomes == list(range(len(file.index.partitions)))
        assert sum(part.cost for _, part in cuts) == 1000


def test_one_segment_is_not_copied() -> None:
    whole = sub_batch_of([1, 2, 3])
    row_partitions = np.array([1, 2, 3], np.int32)
    assert partition_by_segment(whole, table_of([segment(0, 16)]), row_partitions)[0][1] is whole
    assert partition_by_segment(whole, table_of([segment(0, 8), segment(8, 16)]), row_partitions)[0][1] is whole
