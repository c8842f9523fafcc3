"""What counts for the watermark when replicas have journals, and what a journal can seal."""

from __future__ import annotations

import pytest

from smq_core.model.chunk_info import SealOutcome
from smq_core.model.entities import Durability
from smq_core.model.keyspace import KeyRange
from smq_core.replica.log_entries import BatchId, Entry, IncomingBatch, ReplicaConfig, ReplicationMessage
from smq_core.replica.segment_replica import ReplicaState, SegmentReplica
from smq_core.sealing.chain_sealer import ReadChunk, UnsealedTail, WriteChunk, WriteSeal, seal


def config(incarnation: str = "p", *, journal: bool = True) -> ReplicaConfig:
    return ReplicaConfig(
        segment="s",
        range=KeyRange(0, 8),
        incarnation=incarnation,
        replicas=("p", "f"),
        durability=Durability.REPLICATED,
        journal=journal,
    )


def batch(sequence: int, rows: int = 2) -> IncomingBatch:
    return IncomingBatch(
        id=BatchId("producer", 0, sequence), rows=rows, nbytes=100, partition_min=0, partition_max=7, payload=None
    )


def primary() -> SegmentReplica:
    replica = SegmentReplica(config())
    replica.follower_connected("f", 0, 1 << 20)
    replica.open_producer("stream", "producer", 0)
    for sequence in range(3):
        replica.append("stream", batch(sequence), sequence)
    return replica


def entries(count: int, start: int = 0) -> list[Entry]:
    return [Entry(first=2 * n, batch=batch(n), appended=n) for n in range(start, count)]


def test_nothing_is_acked_before_the_primary_has_it_in_its_journal():
    replica = primary()
    replica.follower_acked("f", 6)
    assert (replica.watermark, replica.take_acks()) == (0, [])
    replica.journal_written(4)
    assert (replica.watermark, len(replica.take_acks())) == (4, 2)
    replica.journal_written(6)
    assert (replica.watermark, len(replica.take_acks())) == (6, 1)


def test_the_journal_alone_acks_nothing():
    replica = primary()
    replica.journal_written(6)
    assert replica.watermark == 0


def test_what_is_due_for_the_journal_follows_what_was_written():
    replica = primary()
    due = replica.unjournaled(max_bytes=1)
    assert due is not None and (due.base_offset, len(due.entries)) == (0, 1)
    replica.journal_written(2)
    due = replica.unjournaled()
    assert due is not None and [e.first for e in due.entries] == [2, 4]
    replica.journal_written(6)
    assert replica.unjournaled() is None


def test_a_sealed_replica_has_nothing_left_for_the_journal():
    replica = primary()
    replica.journal_written(2)
    replica.sealed(SealOutcome(segment="s", end=6))
    assert replica.unjournaled() is None


def test_a_primary_whose_journal_failed_goes_on_without_it():
    replica = primary()
    replica.follower_acked("f", 6)
    replica.journal_failed()
    assert (replica.watermark, replica.unjournaled()) == (6, None)


def test_a_follower_counts_only_what_its_journal_has():
    replica = SegmentReplica(config("f"))
    assert (
        replica.replicate(ReplicationMessage(base_offset=0, entries=tuple(entries(3)), watermark=2, chain_end=0)) == 6
    )
    assert replica.durable_end == 0
    replica.journal_written(6)
    assert (replica.durable_end, replica.watermark) == (6, 2)


def test_without_a_journal_everything_counts_at_once():
    replica = SegmentReplica(config("f", journal=False))
    replica.replicate(ReplicationMessage(base_offset=0, entries=tuple(entries(3)), watermark=2, chain_end=0))
    assert (replica.durable_end, replica.unjournaled()) == (6, None)


def test_a_recovered_replica_is_fenced_and_has_the_entries():
    replica = SegmentReplica.recovered(config("f"), entries(5, start=2), watermark=7)
    assert (replica.state, replica.chain_end, replica.end, replica.watermark) == (ReplicaState.FENCED, 4, 10, 7)
    assert replica.tail_bytes == 300


def drive(held: UnsealedTail, chain: dict[int, int], known: int | None = None) -> tuple[SealOutcome, list[tuple]]:
    """Seals against a chain of ``{first: end}``. Returns the outcome, and the offsets of the chunks it wrote."""
    from smq_core.model.chunk_info import ChunkInfo

    steps, written = seal("s", held, known_watermark=known), []
    request = next(steps)
    while True:
        match request:
            case ReadChunk(first):
                end = chain.get(first)
                answer = (
                    None
                    if end is None
                    else ChunkInfo(segment="s", first=first, rows=end - first, writer="w", nonce="n")
                )
            case WriteChunk(chunk):
                written.append((chunk.first, chunk.end))
                answer = True
            case WriteSeal():
                answer = True
        try:
            request = steps.send(answer)
        except StopIteration as done:
            return done.value, written


@pytest.mark.parametrize("chain_end", [4, 6, 10])
def test_a_journal_seals_from_the_chain_end(chain_end):
    replica = SegmentReplica.recovered(config("f"), entries(5, start=2), watermark=7)
    outcome, written = drive(UnsealedTail.of_recovered(replica, 0), {0: 4, 4: chain_end} if chain_end > 4 else {0: 4})
    assert (outcome.end, outcome.lost) == (10, None)
    assert written == ([(chain_end, 10)] if chain_end < 10 else [])


def test_a_journal_without_its_first_part_adds_nothing_after_the_gap():
    replica = SegmentReplica.recovered(config("f"), entries(5, start=2), watermark=7)
    outcome, written = drive(UnsealedTail.of_recovered(replica, 0), {0: 2}, known=10)
    assert (outcome.end, written) == (2, []), "offsets 2 and 3 are missing"
    assert outcome.lost is not None


def test_an_empty_journal_hands_the_predecessors_on():
    empty = SegmentReplica.recovered(
        ReplicaConfig(
            segment="s",
            range=KeyRange(0, 8),
            incarnation="f",
            replicas=("p", "f"),
            durability=Durability.REPLICATED,
            predecessors=("before",),
        ),
        [],
        0,
    )
    outcome, _ = drive(UnsealedTail.of_recovered(empty, 0), {})
    assert (outcome.end, outcome.uninherited) == (0, ("before",))
