"""What a log knows of its producers, as a fold over the log: the same on every replica at the same offset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

    def apply_all(self, batches: Sequence[tuple[BatchId, int]]) -> None:
        """The same as ``apply`` for each batch and its first offset in turn, faster."""
        runs: dict[str, tuple[int, int, list[int]]] = {}  # by producer: epoch, last sequence, first offsets
        for (producer, epoch, sequence), first_offset in batches:
            run = runs.pop(producer, None)
            firsts = run[2] if run is not None and run[0] == epoch else []
            firsts.append(first_offset)
            runs[producer] = (epoch, sequence, firsts)
        if len(self._states.keys() | runs.keys()) > MAX_PRODUCERS:
            for batch, first_offset in batches:
                self.apply(batch, first_offset)
            return
        for producer, (epoch, sequence, firsts) in runs.items():
            old = self._states.pop(producer, None)
            recent = old.recent if old is not None and old.epoch == epoch else ()
            kept = (*recent, *firsts[-RECENT_BATCHES:])[-RECENT_BATCHES:]
            self._states[producer] = ProducerState(epoch, sequence, kept)

    def snapshot(self) -> Mapping[str, ProducerState]:
        return dict(self._states)

    def copy(self) -> ProducerMap:
        twin = ProducerMap()
        twin._states = dict(self._states)
        return twin
