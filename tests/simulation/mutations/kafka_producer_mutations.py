"""Mutations of what a log knows of Kafka's idempotent producers. See ``mutation_table``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from simulation.mutations.mutation_table import MutationTable, Patch
from smq_core.model.chunk_info import ChunkInfo
from smq_core.model.kafka_producers import KafkaProducers
from smq_core.model.keyspace import KeyRange
from smq_core.replica import partition_inheritance
from smq_core.replica.kafka_producer_map import KafkaProducerMap
from smq_core.replica.log_entries import Ack, ChunkWrite
from smq_core.replica.log_state import LogState
from smq_core.replica.pending_acks import PendingAcks
from smq_core.replica.segment_replica import SegmentReplica

MUTATIONS = MutationTable()
mutation = MUTATIONS.add


@mutation
def successors_do_not_know_kafka_producers(patch: Patch) -> None:
    """A segment takes over the Kafka producers of its predecessors."""

    def nothing(partitions: KeyRange, predecessors: Iterable[KafkaProducers]) -> KafkaProducers:
        return {}

    patch.setattr(partition_inheritance, "inherited_kafka_producers", nothing)


@mutation
def append_a_kafka_batch_again(patch: Patch) -> None:
    """A batch that is in the log is not appended again."""
    patch.setattr(KafkaProducerMap, "find_repeat", lambda *_: None)


@mutation
def ack_a_repeated_kafka_batch_at_once(patch: Patch) -> None:
    """A repeat is acked when its batch is durable."""
    add = PendingAcks.add_repeat

    def add_repeat(self: PendingAcks, end: int, ack: Ack) -> None:
        add(self, 0, ack)

    patch.setattr(PendingAcks, "add_repeat", add_repeat)


@mutation
def chunks_have_no_changes_of_kafka_producers(patch: Patch) -> None:
    """A chunk has the Kafka producers that changed in it."""
    patch.setattr(ChunkWrite, "changed_kafka_producers", property(lambda _: {}))


@mutation
def a_sealer_does_not_read_kafka_producers(patch: Patch) -> None:
    """A sealer that walks the chain continues from the Kafka producers in its chunks."""
    apply = LogState.apply_chunk

    def apply_chunk(self: LogState, info: ChunkInfo) -> None:
        known = self.kafka_producers
        apply(self, info)
        self.kafka_producers = known

    patch.setattr(LogState, "apply_chunk", apply_chunk)


@mutation
def followers_do_not_learn_of_inherited_kafka_producers(patch: Patch) -> None:
    """The first entry of a segment carries the Kafka producers that it has inherited."""
    append = SegmentReplica._append_batch

    def append_batch(self: SegmentReplica, *arguments: Any) -> Any:
        self._partition_inheritance.kafka_producers = None
        return append(self, *arguments)

    patch.setattr(SegmentReplica, "_append_batch", append_batch)
