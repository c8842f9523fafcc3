"""Chunks carry all Kafka producers, or those that changed. Whoever reads the chain knows the same as the primary."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smq_core.model.kafka_producers import KafkaBatchId
from smq_core.model.keyspace import KeyRange
from smq_core.model.partition_offsets import offsets_from_zero
from smq_core.replica import kafka_producer_map
from smq_core.replica.log_entries import Entry, IncomingBatch, ProducerLimits
from smq_core.replica.log_state import ChainState, LogState
from smq_core.replica.partition_counter import PartitionCounter
from smq_storage.chunks.info_codec import decode_info_json, encode_info

RING = KeyRange(0, 2)
BATCHES = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 1), st.integers(1, 3), st.integers(0, 4)), min_size=1, max_size=8
)


@given(st.lists(BATCHES, min_size=1, max_size=6))
def test_a_reader_of_the_chain_knows_what_the_primary_knows(chunks: list[list[tuple[int, int, int, int]]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kafka_producer_map, "MAX_COUNT", 4)
        patch.setattr(kafka_producer_map, "MAX_IDLE", 5)
        start = LogState(partitions=PartitionCounter(offsets_from_zero(RING)))
        primary, reader, following = start.copy(), start.copy(), start.copy()
        chain = ChainState(ProducerLimits(snapshot_below=1, snapshot_every=3), start)
        sequences, at, now = count(step=3), 0, 0
        for batches in chunks:
            entries = []
            for producer_id, partition, records, passed in batches:
                now += passed
                # Each producer begins with any sequence in a separate epoch, so that none is refused.
                batch = IncomingBatch(
                    id=KafkaBatchId(producer_id, next(sequences), 0),
                    rows=records,
                    nbytes=1,
                    partition_min=partition,
                    partition_max=partition,
                    payload=None,
                    partition_rows=((partition, records),),
                )
                entries.append(Entry(first=at, batch=batch, appended=now))
                primary.apply(entries[-1])
                at += records
            chunk = chain.next_chunk(entries[0].first, tuple(entries))
            chain.chunk_written(chunk)
            following.apply_all(entries)
            reader.apply_chunk(decode_info_json(encode_info(chunk.info("t-0-2-1", "w", "n"))))
            expected = list(primary.kafka_producers.snapshot().items())
            assert list(reader.kafka_producers.snapshot().items()) == expected
            assert list(following.kafka_producers.snapshot().items()) == expected
