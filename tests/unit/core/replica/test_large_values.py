"""Entries with large values: a chunk has the names of all its entries, and is cut before it has too many."""

from smq_core.model.entities import Durability
from smq_core.model.keyspace import KeyRange
from smq_core.replica.chunk_planning import MAX_LARGE_VALUES
from smq_core.replica.log_entries import BatchId, IncomingBatch, ReplicaConfig
from smq_core.replica.segment_replica import SegmentReplica
from smq_storage.chunks.info_codec import decode_info_json, encode_info


def chunks_of(*counts: int) -> list[tuple[str, ...]]:
    """The names in the metadata of each chunk, for batches with that number of names."""
    replica = SegmentReplica(
        ReplicaConfig(segment="s", range=KeyRange(0, 8), incarnation="p", replicas=("p",), durability=Durability.STORED)
    )
    for sequence, count in enumerate(counts):
        names = tuple(f"{sequence}-{n}" for n in range(count))
        replica.append(
            "stream",
            IncomingBatch(
                id=BatchId("a", 0, sequence),
                rows=1,
                nbytes=5,
                partition_min=2,
                partition_max=5,
                payload=None,
                large_values=names,
            ),
            now=0,
        )
    found = []
    while (chunk := replica.next_chunk(0)) is not None:
        info = chunk.info("s", "p", "n")
        assert decode_info_json(encode_info(info)) == info
        found.append(info.large_values)
        replica.chunk_written(chunk)
    return found


def test_the_names_are_in_the_order_of_the_entries():
    assert chunks_of(1, 0, 2) == [("0-0", "2-0", "2-1")]


def test_a_chunk_has_a_limited_number_of_names():
    assert [len(names) for names in chunks_of(MAX_LARGE_VALUES - 1, 1, 0, 1)] == [MAX_LARGE_VALUES, 1]
    assert [len(names) for names in chunks_of(MAX_LARGE_VALUES + 1, 1)] == [MAX_LARGE_VALUES + 1, 1]
