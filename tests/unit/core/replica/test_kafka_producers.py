"""Kafka's idempotent producers: which batch is next, which is a repeat, and what chunks, seals and successors know."""

from __future__ import annotations

import pytest

from smq_core.errors import InvalidRequest, ProducerFenced, SequenceGap
from smq_core.model.chunk_info import SealOutcome
from smq_core.model.entities import Durability
from smq_core.model.kafka_producers import (
    NO_PRODUCER_ID,
    RECENT_KAFKA_BATCHES,
    SEQUENCES,
    KafkaBatch,
    KafkaBatchId,
    KafkaProducerKey,
    KafkaProducerState,
)
from smq_core.model.keyspace import KeyRange
from smq_core.model.partition_offsets import PartitionOffsets
from smq_core.replica import kafka_producer_map
from smq_core.replica.kafka_producer_map import MAX_IDLE, KafkaProducerMap, inherited_kafka_producers
from smq_core.replica.log_entries import BatchId, IncomingBatch, ReplicaConfig, ReplicationMessage
from smq_core.replica.segment_replica import SegmentReplica
from smq_core.sealing.chain_sealer import UnsealedTail, seal

RING = KeyRange(0, 4)


def replica(range_: KeyRange = RING, **settings: object) -> SegmentReplica:
    config = {"predecessors": (), "counts_partitions": True, "replicas": ("p",)} | settings
    return SegmentReplica(
        ReplicaConfig(
            segment=f"t-{range_.start}-{range_.stop}-9",
            range=range_,
            incarnation="p",
            durability=Durability.REPLICATED,
            **config,  # type: ignore[arg-type]
        )
    )


def kafka_batch(sequence: int, *, producer_id: int = 7, epoch: int = 0, partition: int = 1, records: int = 2):
    return IncomingBatch(
        id=KafkaBatchId(producer_id, epoch, sequence),
        rows=records,
        nbytes=10,
        partition_min=partition,
        partition_max=partition,
        payload=None,
        partition_rows=((partition, records),),
    )


def acked_offsets(it: SegmentReplica) -> list[int | None]:
    return [ack.first_offset for ack in it.take_acks()]


def sealed(it: SegmentReplica) -> SealOutcome:
    """What a seal in an empty filer fixes."""
    steps = seal(it.config.segment, UnsealedTail.of(it))
    reply: object = None
    while True:
        try:
            request = steps.send(reply)  # type: ignore[arg-type]
        except StopIteration as done:
            return done.value
        reply = None if type(request).__name__ == "ReadChunk" else True


def test_acks_have_the_kafka_offsets_of_the_partition():
    primary = replica()
    primary.append(None, kafka_batch(0, partition=1), 0)
    primary.append(None, kafka_batch(0, partition=2, records=5), 0)
    primary.append(None, kafka_batch(2, partition=1), 0)
    assert acked_offsets(primary) == [0, 0, 2]


def test_a_repeat_is_acked_with_its_offset_and_not_appended_again():
    primary = replica()
    for sequence in (0, 2, 4):
        primary.append(None, kafka_batch(sequence), 0)
    primary.take_acks()
    assert primary.append(None, kafka_batch(2), 0) is None
    assert acked_offsets(primary) == [2]
    assert primary.end == 6


def test_a_repeat_is_acked_only_when_its_batch_is_durable():
    primary = replica(replicas=("p", "f"))
    primary.follower_connected("f", 0, 1 << 20)
    primary.append(None, kafka_batch(0), 0)
    assert primary.append(None, kafka_batch(0), 0) is None
    assert acked_offsets(primary) == []
    primary.follower_acked("f", 2)
    assert acked_offsets(primary) == [0, 0]


def test_a_gap_an_older_epoch_and_a_batch_of_another_size_are_refused():
    primary = replica()
    primary.append(None, kafka_batch(0, epoch=3), 0)
    with pytest.raises(SequenceGap) as gap:
        primary.append(None, kafka_batch(4, epoch=3), 0)
    assert gap.value.expected == 2
    with pytest.raises(ProducerFenced):
        primary.append(None, kafka_batch(2, epoch=2), 0)
    with pytest.raises(SequenceGap):
        primary.append(None, kafka_batch(0, epoch=3, records=1), 0)
    assert primary.end == 2


def test_a_new_epoch_begins_at_zero_and_forgets_the_batches_before():
    primary = replica()
    primary.append(None, kafka_batch(0), 0)
    with pytest.raises(SequenceGap):
        primary.append(None, kafka_batch(2, epoch=1), 0)
    assert primary.append(None, kafka_batch(0, epoch=1), 0) is not None
    assert primary.append(None, kafka_batch(0, epoch=1), 0) is None


def test_sequences_begin_anywhere_and_wrap():
    primary = replica()
    primary.append(None, kafka_batch(SEQUENCES - 1, records=2), 0)
    assert primary.append(None, kafka_batch(1), 0) is not None
    assert primary.append(None, kafka_batch(SEQUENCES - 1, records=2), 0) is None


def test_only_the_last_batches_are_remembered():
    primary = replica()
    for sequence in range(0, 2 * RECENT_KAFKA_BATCHES + 2, 2):
        primary.append(None, kafka_batch(sequence), 0)
    assert primary.append(None, kafka_batch(2), 0) is None
    with pytest.raises(SequenceGap):
        primary.append(None, kafka_batch(0), 0)


def test_batches_without_a_producer_id_are_always_appended():
    primary = replica()
    for _ in range(2):
        assert primary.append(None, kafka_batch(-1, producer_id=NO_PRODUCER_ID, epoch=-1), 0) is not None
    assert acked_offsets(primary) == [0, 2]
    assert not primary.state_at_end().kafka_producers.snapshot()


def test_a_topic_with_another_partitioner_takes_none():
    with pytest.raises(InvalidRequest, match="partitioner is Kafka"):
        replica(counts_partitions=False).append(None, kafka_batch(0), 0)


def test_native_producers_are_not_changed_by_kafka_s():
    primary = replica()
    primary.append(None, kafka_batch(0), 0)
    native = IncomingBatch(
        id=BatchId("a", 0, 0),
        rows=1,
        nbytes=1,
        partition_min=1,
        partition_max=1,
        payload=None,
        partition_rows=((1, 1),),
    )
    entry = primary.append(None, native, 0)
    primary.append(None, kafka_batch(2), 0)
    assert entry is not None and entry.first == 2
    assert set(primary.state_at_end().producers.snapshot()) == {"a"}
    assert acked_offsets(primary) == [0, 2, 3]


def test_a_successor_inherits_the_producers_of_its_partitions_with_their_sequences():
    primary = replica()
    for partition in RING.start, 1, 3:
        primary.append(None, kafka_batch(0, partition=partition), 5)
    outcome = sealed(primary)
    successor = replica(KeyRange(0, 2), predecessors=("t-0-4-9",))
    successor.predecessor_sealed(outcome)
    assert successor.append(None, kafka_batch(0, partition=1), 6) is None, "it is in the predecessor"
    with pytest.raises(SequenceGap):
        successor.append(None, kafka_batch(4, partition=1), 6)
    entry = successor.append(None, kafka_batch(2, partition=1), 6)
    assert entry is not None and set(entry.inherited_kafka_producers or ()) == {(7, 0), (7, 1)}
    assert acked_offsets(successor) == [0, 2]
    assert set(sealed(successor).kafka_producers) == {(7, 0), (7, 1)}


def test_a_successor_that_ends_empty_passes_on_what_it_has_inherited():
    primary = replica()
    primary.append(None, kafka_batch(0), 0)
    outcome = sealed(primary)
    empty = replica(predecessors=("t-0-4-9",))
    assert sealed(empty).kafka_producers == {}, "it has read nothing, and names its predecessors"
    empty.predecessor_sealed(outcome)
    assert sealed(empty).kafka_producers == outcome.kafka_producers


def test_a_follower_knows_the_same():
    primary = replica()
    follower = replica(replicas=("q", "p"))
    for sequence in (0, 2):
        primary.append(None, kafka_batch(sequence), 0)
    follower.replicate(ReplicationMessage(base_offset=0, entries=tuple(primary.tail), watermark=0, chain_end=0))
    assert follower.state_at_end().kafka_producers.snapshot() == primary.state_at_end().kafka_producers.snapshot()


def test_of_two_predecessors_the_later_batch_counts():
    key = KafkaProducerKey(7, 1)
    states = [
        {key: KafkaProducerState(epoch=0, batches=(KafkaBatch(sequence, 1, sequence),), appended=sequence)}
        for sequence in (4, 9)
    ]
    assert inherited_kafka_producers(RING, states)[key].appended == 9
    assert inherited_kafka_producers(RING, states[::-1])[key].appended == 9
    assert inherited_kafka_producers(KeyRange(2, 4), states) == {}


def test_idle_producers_are_forgotten():
    it = KafkaProducerMap()
    it.append(KafkaBatchId(1, 0, 0), 0, records=1, offset=0, appended=0)
    it.append(KafkaBatchId(2, 0, 0), 0, records=1, offset=1, appended=MAX_IDLE)
    assert len(it) == 2
    it.append(KafkaBatchId(2, 0, 1), 0, records=1, offset=2, appended=MAX_IDLE + 1)
    assert set(it.snapshot()) == {(2, 0)}
    it.append(KafkaBatchId(1, 0, 77), 0, records=1, offset=3, appended=MAX_IDLE + 1)  # may begin with any sequence


def test_of_too_many_producers_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kafka_producer_map, "MAX_COUNT", 2)
    it = KafkaProducerMap()
    for number, producer_id in enumerate((1, 2, 1, 3)):
        sequence = 1 if number == 2 else 0
        it.append(KafkaBatchId(producer_id, 0, sequence), 0, records=1, offset=number, appended=0)
    assert set(it.snapshot()) == {(1, 0), (3, 0)}


def test_a_jump_is_part_of_the_offset():
    primary = replica(KeyRange(0, 1), predecessors=("t-0-1-8",))
    offsets = PartitionOffsets(first=0, ends=(10,), jumps=((0, 5),))
    primary.predecessor_sealed(SealOutcome(segment="t-0-1-8", end=10, partitions=offsets))
    primary.append(None, kafka_batch(0, partition=0), 0)
    assert acked_offsets(primary) == [15]
    assert primary.append(None, kafka_batch(0, partition=0), 0) is None
    assert acked_offsets(primary) == [15]
