"""Keys: the canonical bytes of each type, and partitions of rows with and without keys."""

from __future__ import annotations

import datetime
import decimal
import struct

import numpy as np
import pyarrow as pa
import pytest

from smq.producing.encoding.keys import KeylessPartitioner, canonical_bytes, key_bytes, partitions
from smq_core.errors import InvalidRequest
from smq_core.model.keyspace import Ring, partition_of

FIVE = struct.pack("<q", 5)


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([b"a", None]), [b"a", None]),
        (pa.array(["é", None]), ["é".encode(), None]),
        (pa.array(["é"], pa.large_string()), ["é".encode()]),
        (pa.array(["x", "y", "x"]).dictionary_encode(), [b"x", b"y", b"x"]),
        (pa.array([5, None], pa.int8()), [FIVE, None]),
        (pa.array([5], pa.int64()), [FIVE]),
        (pa.array([5], pa.uint32()), [FIVE]),
        (pa.array([2**63 + 1], pa.uint64()), [struct.pack("<Q", 2**63 + 1)]),
        (pa.array([-1], pa.int16()), [struct.pack("<q", -1)]),
        (pa.array([True, False, None]), [struct.pack("<q", 1), struct.pack("<q", 0), None]),
        (pa.array([5.0, None], pa.float32()), [struct.pack("<d", 5.0), None]),
        (pa.array([datetime.date(1970, 1, 6)]), [FIVE]),
        (pa.array([5000], pa.timestamp("ns", tz="UTC")), [FIVE]),
        (pa.array([decimal.Decimal("1.50")]), [b"1.50"]),
        (pa.nulls(2), [None, None]),
    ],
)
def test_canonical_bytes(column: pa.Array, expected: list[bytes | None]) -> None:
    found = canonical_bytes(column)
    assert found.type == pa.binary()
    assert found.to_pylist() == expected
    assert canonical_bytes(column.slice(1)).to_pylist() == expected[1:]


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (pa.string(), ["", "a", "é€", None]),
        (pa.binary(), [b"", b"a", None]),
        (pa.int32(), [5, None, -1]),
        (pa.float32(), [5.0, None]),
        (pa.timestamp("us", tz="UTC"), [datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), None]),
        (pa.decimal128(5, 2), [decimal.Decimal("1.50"), None]),
    ],
)
def test_values_of_messages_have_the_canonical_bytes_of_their_column(type_: pa.DataType, values: list[object]) -> None:
    column = pa.array(values, type_)
    found = key_bytes(values, type_, lambda given: pa.array(given, type_))
    assert found == canonical_bytes(column).to_pylist()


def test_a_nested_column_cannot_be_a_key() -> None:
    with pytest.raises(InvalidRequest, match="list"):
        canonical_bytes(pa.array([[1]]))


def test_rows_without_a_key_go_together_and_all_others_where_their_key_says() -> None:
    keys = pa.array([b"a", None, b"b", None])
    assert partitions(keys, 4, Ring(64), 9).tolist() == [partition_of(b"a", 64), 9, partition_of(b"b", 64), 9]
    assert partitions(None, 2, Ring(64), 9).tolist() == [9, 9]
    assert partitions(pa.nulls(2, pa.binary()), 2, Ring(64), 9).tolist() == [9, 9]


@pytest.mark.parametrize("count", [1, 2, 3, 10, 64, 1000, 1024, 65536])
def test_keyless_batches_are_spread_over_the_ring(count: int) -> None:
    chooser = KeylessPartitioner(count, 12345)
    chosen = [chooser.next() for _ in range(count)]
    assert sorted(chosen) == list(range(count)), "each partition once in a round"
    few = np.array(chosen[: min(count, 8)])
    if count >= 64:
        assert np.diff(np.sort(few)).max() < count // 2, "any few lie spread"
