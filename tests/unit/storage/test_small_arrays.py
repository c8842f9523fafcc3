"""Columns of batches, made from their buffers: they equal what Arrow makes of the same values."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smq_storage.chunks.schemas import HEADERS, TIMESTAMP
from smq_storage.chunks.small_arrays import FEW, binary_array, no_headers, time_array


@given(st.lists(st.one_of(st.none(), st.binary(max_size=3)), min_size=1, max_size=20))
def test_bytes_with_nulls(values: list[bytes | None]) -> None:
    found = binary_array(values)
    found.validate(full=True)
    assert found == pa.array(values, pa.binary())
    assert found.null_count == values.count(None)


def test_many_values_are_as_few_ones() -> None:
    values = [None if number % 7 == 0 else b"%d" % number for number in range(10 * FEW)]
    assert binary_array(values) == pa.array(values, pa.binary())
    assert no_headers(10 * FEW) == pa.nulls(10 * FEW, HEADERS)


@pytest.mark.parametrize("rows", [1, FEW, FEW + 1, 10 * FEW])
def test_timestamps_are_those_given_or_when_it_was_sent(rows: int) -> None:
    sent = [1_700_000_000_000_000_999 + 1_000 * row for row in range(rows)]
    found = time_array(sent, {0: -5})
    found.validate(full=True)
    expected = [-5, *(1_700_000_000_000_000 + row for row in range(1, rows))]
    assert found == pa.array(expected, pa.int64()).cast(TIMESTAMP)


SENDS_PLAIN_MESSAGES = """
import sys, threading
from smq.producing.batching.batch_builder import BatchBuilder
from smq.producing.delivery_state import OPEN_ROW_COUNT, DeliveryState
from smq.producing.encoding.batch_encoder import BatchEncoder
from smq.producing.encoding.keys import KeylessPartitioner
from smq_core.model.entities import Topic, TopicSpec

encoder = BatchEncoder(Topic("default/t", "uid", TopicSpec(partitions=8)))
for keys in ([None] * 1000, [None, b"key"] * 500):
    batch = BatchBuilder(encoder, DeliveryState(OPEN_ROW_COUNT, threading.Lock()), 0.0)
    for key in keys:
        batch.add(b"value", key, 0)
    assert batch.to_rows(KeylessPartitioner(8, 0)).encode().num_rows == 1000
assert "pandas" not in sys.modules
"""


def test_plain_messages_do_not_wait_for_an_import_of_pandas() -> None:
    subprocess.run([sys.executable, "-c", SENDS_PLAIN_MESSAGES], check=True)
