"""The state of a log's Kafka producers, computed from the log alone, so that replicas agree on it at every offset."""

from __future__ import annotations

from collections.abc import Iterable

from smq_core.model.entities import SECOND, Micros
from smq_core.model.kafka_producers import (
    KafkaBatch,
    KafkaBatchId,
    KafkaProducerKey,
    KafkaProducers,
    KafkaProducerState,
)
from smq_core.model.keyspace import KeyRange

# A producer is forgotten this long after its last batch, in log time. Kafka has the same (`producer.id.expiration.ms`).
# Replicas and sealers compute the same state only if they have the same limits.
MAX_IDLE: Micros = 24 * 3600 * SECOND

# Pairs of producer and partition in one log. This is enough for 1,000 producers that write to 128 partitions each.
MAX_COUNT = 1 << 17


class KafkaProducerMap:
    """The state of each producer in each partition at one position of the log, in the order of their last batches.

    Each batch drops those whose last batch is too old, and the oldest ones if there are too many.
    """

    def __init__(self, at: KafkaProducers | None = None) -> None:
        self._states: dict[KafkaProducerKey, KafkaProducerState] = dict(at or {})

    def __len__(self) -> int:
        return len(self._states)

    def find_repeat(self, id_: KafkaBatchId, partition: int, records: int) -> KafkaBatch | None:
        """The batch of the log that is sent again, or None for one to append. Raises ProducerFenced or SequenceGap."""
        state = self._states.get(KafkaProducerKey(id_.producer_id, partition)) if id_.is_idempotent else None
        return state.find_repeat(id_, records) if state is not None else None

    def append(self, id_: KafkaBatchId, partition: int, *, records: int, offset: int, appended: Micros) -> None:
        """A batch follows, whose first record has this Kafka offset."""
        if not id_.is_idempotent:
            return
        key = KafkaProducerKey(id_.producer_id, partition)
        batch = KafkaBatch(id_.sequence, records, offset)
        before = self._states.pop(key, None)
        if before is None:
            self._states[key] = KafkaProducerState(epoch=id_.epoch, batches=(batch,), appended=appended)
        else:
            self._states[key] = before.with_batch(id_.epoch, batch, appended)
        self._forget()

    def inherit(self, inherited: KafkaProducers) -> None:
        """Takes over what the predecessors know; only before the first batch."""
        self._states = dict(inherited)

    def apply_changes(self, changed: KafkaProducers) -> None:
        """Moves on to the end of a chunk that has the producers that changed in it."""
        for key, state in changed.items():
            self._states.pop(key, None)
            self._states[key] = state
        if changed:
            self._forget()

    def snapshot(self) -> KafkaProducers:
        return dict(self._states)

    def copy(self) -> KafkaProducerMap:
        return KafkaProducerMap(self._states)

    def _forget(self) -> None:
        """Called after each batch. The last one alone decides, so a chunk's changes lead to the same as its batches."""
        states = self._states
        oldest = next(reversed(states.values())).appended - MAX_IDLE
        while len(states) > MAX_COUNT or next(iter(states.values())).appended < oldest:
            del states[next(iter(states))]


def inherited_kafka_producers(partitions: KeyRange, predecessors: Iterable[KafkaProducers]) -> KafkaProducers:
    """What a segment takes over: the producers in its partitions, each with its last batches."""
    found: dict[KafkaProducerKey, KafkaProducerState] = {}
    for producers in predecessors:
        for key, state in producers.items():
            if key.partition in partitions and (key not in found or found[key].appended < state.appended):
                found[key] = state
    return dict(sorted(found.items(), key=lambda item: (item[1].appended, item[0])))
