"""The state of a log's producers, computed from the log alone, so that replicas agree on it at every offset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from smq_core.model.entities import RECENT_BATCHES, Producers, ProducerState

MAX_PRODUCERS = 1000


class BatchId(NamedTuple):
    """Identifies a batch: its producer, the producer's epoch, and the sequence.

    The sequence counts the producer's batches for this segment, from 0 in each epoch.
    """

    producer: str
    epoch: int
    sequence: int


class ProducerMap:
    """The state of each live producer at one log position.

    The map is pruned by log position alone: if it exceeds ``MAX_PRODUCERS``, it drops the producer whose last batch is
    the oldest. Entries are in the order of their last batches, so this is the first entry.
    """

    def __init__(self, at: Producers | None = None) -> None:
        ordered = sorted((at or {}).items(), key=lambda item: item[1].recent[-1:])
        self._states: dict[str, ProducerState] = dict(ordered)

    def get(self, producer: str) -> ProducerState | None:
        return self._states.get(producer)

    def expected(self, producer: str, epoch: int) -> int:
        """The next sequence of this producer in this epoch."""
        state = self._states.get(producer)
        return state.last_sequence + 1 if state is not None and state.epoch == epoch else 0

    def apply(self, batch: BatchId, first_offset: int) -> None:
        """Records a batch that the log has at this offset."""
        old = self._states.pop(batch.producer, None)
        recent = old.recent if old is not None and old.epoch == batch.epoch else ()
        kept = (*recent[-(RECENT_BATCHES - 1) :], first_offset)
        self._states[batch.producer] = ProducerState(batch.epoch, batch.sequence, kept)
        if len(self._states) > MAX_PRODUCERS:
            del self._states[next(iter(self._states))]

    def apply_all(self, batches: Sequence[tuple[BatchId, int]]) -> None:
        """Applies each batch with its first offset in turn. Faster than many calls of ``apply``."""
        # by producer: epoch, last sequence, first offsets
        batches_by_producer: dict[str, tuple[int, int, list[int]]] = {}
        for (producer, epoch, sequence), first_offset in batches:
            producer_batches = batches_by_producer.pop(producer, None)
            firsts = producer_batches[2] if producer_batches is not None and producer_batches[0] == epoch else []
            firsts.append(first_offset)
            batches_by_producer[producer] = (epoch, sequence, firsts)
        if len(self._states.keys() | batches_by_producer.keys()) > MAX_PRODUCERS:
            for batch, first_offset in batches:
                self.apply(batch, first_offset)
            return
        for producer, (epoch, sequence, firsts) in batches_by_producer.items():
            old = self._states.pop(producer, None)
            recent = old.recent if old is not None and old.epoch == epoch else ()
            kept = (*recent, *firsts[-RECENT_BATCHES:])[-RECENT_BATCHES:]
            self._states[producer] = ProducerState(epoch, sequence, kept)

    def snapshot(self) -> Mapping[str, ProducerState]:
        return dict(self._states)

    def copy(self) -> ProducerMap:
        duplicate = ProducerMap()
        duplicate._states = dict(self._states)
        return duplicate
