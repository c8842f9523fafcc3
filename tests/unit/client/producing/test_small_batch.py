"""A small batch has the rows that the Arrow batch would have, or is not used."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smq.producing.batching.row_batch import RowBatch, encode_together
from smq.producing.batching.small_batch import add_small_batch
from smq_broker.rows.small_batches import read_small_batch
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import MAX_SMALL_BATCH_ROWS
from support.data.row_batches import PLAIN, TYPED, Row, batch_of

PLAIN_ROWS = st.lists(
    st.tuples(st.binary(max_size=3), st.integers(0, 1 << 60), st.none() | st.integers(-5, 5), st.just(False)),
    min_size=1,
    max_size=12,
)


def sent(batches: list[RowBatch | pa.RecordBatch]) -> pa.RecordBatch | None:
    """What a broker has of these batches; None if they do not go as a small batch."""
    message = pb.ProducerFrame()
    if not add_small_batch(message, batches):
        assert not message.HasField("small_batch"), "nothing is added"
        return None
    return read_small_batch(pb.ProducerFrame.FromString(message.SerializeToString()).small_batch).to_arrow()


@given(groups=st.lists(PLAIN_ROWS, min_size=1, max_size=4), has_keys=st.booleans())
def test_it_has_the_rows_of_all_batches(groups: list[list[Row]], has_keys: bool) -> None:
    rows = [[(key if has_keys else None, *rest) for key, *rest in group] for group in groups]
    batches = [batch_of(group, PLAIN, number) for number, group in enumerate(rows)]  # type: ignore[arg-type]
    assert sent([*batches]) == encode_together(batches)


KEYED: Row = (b"k", 5, None, False)
KEYLESS: Row = (None, 5, None, False)
WITH_HEADER_AND_NULL: Row = (b"k", 5, None, True)


@pytest.mark.parametrize(
    "batches",
    [
        [batch_of([KEYED], PLAIN), batch_of([KEYLESS], PLAIN)],
        [batch_of([KEYED, KEYLESS], PLAIN)],
        [batch_of([KEYED], TYPED)],
        [batch_of([KEYED], PLAIN), batch_of([KEYED], PLAIN).encode()],
        [batch_of([KEYED] * MAX_SMALL_BATCH_ROWS, PLAIN), batch_of([KEYED], PLAIN)],
    ],
    ids=["a batch without keys", "a row without key", "a schema", "an Arrow batch", "too many rows"],
)
def test_what_it_cannot_have_goes_as_an_arrow_batch(batches: list[RowBatch | pa.RecordBatch]) -> None:
    assert sent(batches) is None


def test_null_values_and_headers_go_as_an_arrow_batch() -> None:
    has_null, has_header = batch_of([KEYED], PLAIN), batch_of([WITH_HEADER_AND_NULL], PLAIN)
    has_null.values, has_header.values = [None], [b"v"]
    assert sent([has_null]) is None and sent([has_header]) is None


def test_as_many_rows_as_allowed_go_as_one() -> None:
    found = sent([batch_of([KEYED] * MAX_SMALL_BATCH_ROWS, PLAIN)])
    assert found is not None and found.num_rows == MAX_SMALL_BATCH_ROWS
