"""Entries with references: how they are cut into chunks, when these are due, and what the chunk's metadata says."""

import pytest

from smq_core.model.chunk_info import ChunkInfo
from smq_core.model.entities import Durability
from smq_core.model.keyspace import KeyRange
from smq_core.model.reference import Reference
from smq_core.replica.log_entries import BatchId, Entry, IncomingBatch, ReplicaConfig
from smq_core.replica.segment_replica import SegmentReplica
from smq_core.sealing.chain_sealer import ReadChunk, UnsealedTail, WriteChunk, seal
from smq_storage.chunks.info_codec import decode_info_json, encode_info

KINDS = ["rows", "rows", "reference", "rows", "reference", "reference", "rows"]
# Batches of three rows: the two before the first reference share a chunk.
CHUNKS = [(0, 6), (6, 9), (9, 12), (12, 15), (15, 18), (18, 21)]


def reference(sequence: int) -> Reference:
    return Reference(
        upload=f"u{sequence}.parquet",
        etag="e",
        first_row=7,
        rows=3,
        bytes=1 << 30,
        partition_min=2,
        partition_max=5,
        timestamp_min=10,
        timestamp_max=20,
    )


def batch(sequence: int) -> IncomingBatch:
    refers = KINDS[sequence] == "reference"
    return IncomingBatch(
        id=BatchId("a", 0, sequence),
        rows=3,
        nbytes=5,
        partition_min=2,
        partition_max=5,
        payload=None,
        reference=reference(sequence) if refers else None,
    )


def primary(durability: Durability = Durability.REPLICATED) -> SegmentReplica:
    replicas = ("p", "f") if durability is Durability.REPLICATED else ("p",)
    replica = SegmentReplica(
        ReplicaConfig(
            segment="s",
            range=KeyRange(0, 8),
            incarnation="p",
            replicas=replicas,
            durability=durability,
            flush_bytes=1000,
            flush_interval=1000,
        )
    )
    if replica.config.followers:
        replica.follower_connected("f", 0, 1 << 20)
    return replica


def written_chunks(replica: SegmentReplica, *, force: bool = False) -> list[tuple[int, int]]:
    found = []
    while (chunk := replica.next_chunk(0, force=force)) is not None:
        assert chunk.reference is None or len(chunk.entries) == 1
        found.append((chunk.first, chunk.end))
        replica.chunk_written(chunk)
    return found


@pytest.mark.parametrize("durability", Durability)
def test_a_reference_is_a_chunk_of_its_own(durability: Durability):
    replica = primary(durability)
    for sequence in range(len(KINDS)):
        replica.append("stream", batch(sequence), now=sequence)
    if replica.config.followers:
        replica.follower_acked("f", replica.end)
    assert written_chunks(replica, force=True) == CHUNKS


def test_a_reference_and_what_is_before_it_are_due_once_it_is_acked():
    replica = primary()
    for sequence in range(4):
        replica.append("stream", batch(sequence), now=0)
    replica.follower_acked("f", 6)
    assert not replica.has_reference_to_write and written_chunks(replica) == []
    replica.follower_acked("f", 12)
    assert replica.has_reference_to_write
    assert written_chunks(replica) == [(0, 6), (6, 9)]
    assert not replica.has_reference_to_write


def test_a_reference_costs_a_tail_only_its_metadata():
    replica = primary()
    replica.append("stream", batch(0), now=0)
    replica.append("stream", batch(1), now=0)
    replica.append("stream", batch(2), now=0)
    assert (replica.end, replica.tail_bytes) == (9, 15)
    assert (replica.counters.batches, replica.counters.messages) == (3, 6)


@pytest.mark.parametrize("chain_end", [0, 6, 9, 12])
def test_a_sealer_cuts_the_log_at_the_same_offsets(chain_end: int):
    entries = tuple(Entry(first=3 * n, batch=batch(n), appended=n) for n in range(len(KINDS)))
    there = {
        first: ChunkInfo(segment="s", first=first, rows=end - first, writer="p", nonce="n")
        for first, end in CHUNKS
        if end <= chain_end
    }
    sealer, answer, written = seal("s", UnsealedTail(entries=entries)), None, []
    while True:
        try:
            step = sealer.send(answer)
        except StopIteration as end:
            assert end.value.end == 21
            break
        if isinstance(step, WriteChunk):
            written.append((step.chunk.first, step.chunk.end))
        answer = there.get(step.first) if isinstance(step, ReadChunk) else True
    assert written == [chunk for chunk in CHUNKS if chunk[0] >= chain_end]


def test_the_metadata_of_a_reference_chunk():
    replica = primary(Durability.STORED)
    for sequence in range(3):
        replica.append("stream", batch(sequence), now=100 + sequence)
    rows, refers = replica.next_chunk(0), None
    replica.chunk_written(rows)
    refers = replica.next_chunk(0)
    assert (rows.info("s", "p", "n").reference, rows.info("s", "p", "n").appended) == (None, None)
    info = refers.info("s", "p", "n")
    assert (info.first, info.rows, info.reference, info.appended) == (6, 3, reference(2), 102)
    assert info.producers["a"].recent[-1] == info.first
    assert info.upload == info.reference.upload, "an operator of a former release would collect the upload otherwise"
    assert rows.info("s", "p", "n").upload is None
    assert decode_info_json(encode_info(info)) == info


def test_only_a_producers_next_batch_is_new():
    replica = primary()
    replica.append("stream", batch(0), now=0)
    assert [replica.is_new(BatchId("a", 0, sequence)) for sequence in range(3)] == [False, True, False]
    assert [replica.is_new(BatchId("a", 1, sequence)) for sequence in range(2)] == [True, False]
