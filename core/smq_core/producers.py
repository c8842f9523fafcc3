"""What a log knows of its producers, as a fold over the log: the same on every replica at the same offset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from smq_core.model import RECENT_BATCHES, Producers, ProducerState

MAX_PRODUCERS = 1000


class BatchId(NamedTuple):
    """Who sent a batch, and as which of its batches for this segment (counted from 0 in each epoch)."""

    producer: str
    epoch: int
    sequence: int


class ProducerMap:
    """The state of each live producer at one log position.

    Pruned by log position alone: when there are more than ``MAX_PRODUCERS``, the one whose last batch is the oldest
    goes. The map is kept in the order of last batches, so that this is its first entry.
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
        """The batch is in the log at this offset."""
        old = self._states.pop(batch.producer, None)
        recent = old.recent if old is not None and old.epoch == batch.epoch else ()
        kept = (*recent[-(RECENT_BATCHES - 1) :], first_offset)
        self._states[batch.producer] = ProducerState(batch.epoch, batch.sequence, kept)
        if len(self._states) > MAX_PRODUCERS:
            del self._states[next(iter(self._states))]

    def snapshot(self) -> Mapping[str, ProducerState]:
        return dict(self._states)

    def copy(self) -> ProducerMap:
        twin = ProducerMap()
        twin._states = dict(self._states)
        return twin
