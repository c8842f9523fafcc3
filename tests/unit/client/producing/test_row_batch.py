"""Rows in lists become the same batch whether they are encoded alone, together, or after a split."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smq.producing.batching.batch_builder import BatchBuilder
from smq.producing.batching.row_batch import MAX_BYTES, MAX_ROWS, encode_together, is_worth_joining, join
from smq.producing.delivery_state import OPEN_ROW_COUNT, DeliveryState
from smq.producing.encoding.batch_encoder import BatchEncoder
from smq.producing.encoding.keys import KeylessPartitioner
from smq_core.errors import InvalidRequest
from smq_core.model.keyspace import partition_of
from support.data.row_batches import PARTITIONS, PLAIN, TYPED, Row, batch_of

ROWS = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=3),
        st.integers(0, 1 << 60),
        st.none() | st.integers(-5, 5),
        st.booleans(),
    ),
    min_size=1,
    max_size=12,
)


@pytest.mark.parametrize("encoder", [PLAIN, TYPED], ids=["plain", "typed"])
@given(groups=st.lists(ROWS, min_size=1, max_size=4))
def test_batches_that_are_encoded_together_are_those_that_are_encoded_alone(
    encoder: BatchEncoder, groups: list[list[Row]]
) -> None:
    batches = [batch_of(rows, encoder, number) for number, rows in enumerate(groups)]
    together = encode_together(batches)
    together.validate(full=True)
    assert together.schema == encoder.schema
    assert together == pa.concat_batches([batch.encode() for batch in batches])
    assert encode_together([batches[0].encode(), *batches[1:]]) == together, "also if one was encoded before"


@pytest.mark.parametrize("encoder", [PLAIN, TYPED], ids=["plain", "typed"])
@given(rows=ROWS, data=st.data())
def test_some_rows_of_a_batch_are_those_rows(encoder: BatchEncoder, rows: list[Row], data: st.DataObject) -> None:
    batch = batch_of(rows, encoder)
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, unique=True).map(sorted))
    assert batch.take(chosen).encode() == batch.encode().take(pa.array(chosen))


@pytest.mark.parametrize("count", [1, MAX_ROWS, MAX_ROWS + 1])
def test_keys_hash_to_the_same_partitions_however_many_there_are(count: int) -> None:
    keys = [None if number % 3 == 1 else b"%d" % number for number in range(count)]
    found = batch_of([(key, 0, None, False) for key in keys], PLAIN, 9)
    keyless = KeylessPartitioner(PARTITIONS, 9).next()
    assert list(found.partitions) == [keyless if key is None else partition_of(key, PARTITIONS) for key in keys]
    assert found.encode().column("partition").to_pylist() == list(found.partitions)


def test_a_typed_key_hashes_by_its_canonical_bytes() -> None:
    (partition,) = batch_of([(None, 5, None, False)], TYPED).partitions
    assert partition == partition_of((5).to_bytes(8, "little"), PARTITIONS)


def test_only_few_and_small_messages_wait_for_others() -> None:
    few = batch_of([(None, 0, None, False)] * MAX_ROWS, PLAIN)
    many = join([few, batch_of([(None, 0, None, False)], PLAIN)])
    assert (
        is_worth_joining(few, MAX_BYTES) and not is_worth_joining(few, MAX_BYTES + 1) and not is_worth_joining(many, 1)
    )


def test_values_that_an_interrupt_has_separated_from_their_messages_are_not_sent() -> None:
    builder = BatchBuilder(PLAIN, DeliveryState(OPEN_ROW_COUNT, threading.Lock()), 0.0)
    builder.values.append(b"of a call of send that a signal has ended")
    builder.add(b"of the next call", None, 0)
    with pytest.raises(InvalidRequest, match=r"interrupted.*send them again"):
        builder.to_rows(KeylessPartitioner(PARTITIONS, 0))
