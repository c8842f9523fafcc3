"""What a log knows of Kafka's idempotent producers.

Such a producer numbers its records for each partition. A batch keeps these sequences when it is sent again, also to
a successor of the segment, so successors inherit them. A log knows the last batches of each producer in each partition:
as many as a client may have in flight. With these it recognises repeats and gaps.

The rules are those of Kafka's ``ProducerStateManager``: a producer that is not known may begin with any sequence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from smq_core.errors import ProducerFenced, SequenceGap
from smq_core.model.entities import Micros

# How many batches an idempotent producer may have in flight to a partition.
RECENT_KAFKA_BATCHES = 5

# Sequences go from 0 to 2^31 - 1, and then from 0 again.
SEQUENCES = 1 << 31

# The producer id of batches without sequences.
NO_PRODUCER_ID = -1


class KafkaBatchId(NamedTuple):
    """Identifies a Kafka batch within its partition, unless ``producer_id`` is ``NO_PRODUCER_ID``.

    ``sequence`` is that of the batch's first record.
    """

    producer_id: int
    epoch: int
    sequence: int

    @property
    def is_idempotent(self) -> bool:
        return self.producer_id != NO_PRODUCER_ID


class KafkaProducerKey(NamedTuple):
    producer_id: int
    partition: int


class KafkaBatch(NamedTuple):
    """A batch in the log. ``offset`` is the Kafka offset of its first record."""

    first_sequence: int
    records: int
    offset: int

    @property
    def next_sequence(self) -> int:
        return (self.first_sequence + self.records) % SEQUENCES


def batches_from(first_sequence: int, records_and_offsets: Iterable[tuple[int, int]]) -> tuple[KafkaBatch, ...]:
    """Batches whose sequences follow each other, as those of one producer and epoch do."""
    batches: list[KafkaBatch] = []
    for records, offset in records_and_offsets:
        batches.append(KafkaBatch(first_sequence, records, offset))
        first_sequence = batches[-1].next_sequence
    return tuple(batches)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaProducerState:
    """One producer in one partition: its epoch, and the last batches of this epoch, the newest last; never empty.

    ``appended`` is when the newest was appended, to this log or to a predecessor.
    """

    epoch: int
    batches: tuple[KafkaBatch, ...]
    appended: Micros

    def with_batch(self, epoch: int, batch: KafkaBatch, appended: Micros) -> KafkaProducerState:
        """The state after this batch of the same producer."""
        earlier = self.batches if epoch == self.epoch else ()
        return KafkaProducerState(epoch=epoch, batches=(*earlier, batch)[-RECENT_KAFKA_BATCHES:], appended=appended)

    def find_repeat(self, id_: KafkaBatchId, records: int) -> KafkaBatch | None:
        """The batch of the log that is sent again, or None if it is the producer's next one.

        Raises ProducerFenced for an older epoch, and SequenceGap if it is neither.
        """
        if id_.epoch < self.epoch:
            raise ProducerFenced(
                f"Kafka producer {id_.producer_id} is at epoch {self.epoch}; one with epoch {id_.epoch} must stop",
                epoch=self.epoch,
            )
        expected = 0
        if id_.epoch == self.epoch:
            for batch in self.batches:
                if (batch.first_sequence, batch.records) == (id_.sequence, records):
                    return batch
            expected = self.batches[-1].next_sequence
        if id_.sequence != expected:
            raise SequenceGap(
                f"Kafka producer {id_.producer_id} sent sequence {id_.sequence}, but {expected} is next",
                expected=expected,
            )
        return None


# In the order of the producers' last batches.
KafkaProducers = Mapping[KafkaProducerKey, KafkaProducerState]
