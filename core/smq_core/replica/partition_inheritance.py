"""What a segment that counts the messages of its partitions takes over from its predecessors."""

from __future__ import annotations

from smq_core.model.chunk_info import SealOutcome
from smq_core.model.entities import range_of
from smq_core.model.kafka_producers import KafkaProducers
from smq_core.model.keyspace import KeyRange
from smq_core.model.partition_offsets import PartitionOffsets, inherited_offsets
from smq_core.replica.kafka_producer_map import KafkaProducerMap, inherited_kafka_producers
from smq_core.replica.log_state import LogState
from smq_core.replica.partition_counter import PartitionCounter


class PartitionInheritance:
    """``starts`` and ``kafka_producers`` are what the segment's first entry carries, once ``apply`` was called."""

    def __init__(self, partitions: KeyRange) -> None:
        self._partitions = partitions
        self._read: dict[str, SealOutcome] = {}
        self.starts: PartitionOffsets | None = None
        self.kafka_producers: KafkaProducers | None = None

    def predecessor_sealed(self, outcome: SealOutcome) -> None:
        """This predecessor's seal chunk was read."""
        self._read[outcome.segment] = outcome

    def apply(self, state: LogState) -> None:
        """All predecessors have been read. Raises CorruptChunk if none says where one of the partitions ends."""
        read = self._read.values()
        self.starts = inherited_offsets(
            self._partitions, [outcome.sealed_partitions(range_of(outcome.segment)) for outcome in read]
        )
        producers = inherited_kafka_producers(self._partitions, [outcome.kafka_producers for outcome in read])
        self.kafka_producers = producers or None
        state.partitions = PartitionCounter(self.starts)
        state.kafka_producers = KafkaProducerMap(producers)
        self._read.clear()
