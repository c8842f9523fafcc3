"""The state of a log's producers, computed from the log alone, so that replicas agree on it at every offset."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from smq_core.model.entities import RECENT_BATCHES, ChunkInfo, Producers, ProducerState
from smq_core.replica.log_entries import BatchId, Entry


class ProducerMap:
    """The state of each producer at one log position. Entries are in the order of their last batches.

    ``forgotten_upto`` is above the first offset of the last batch of every producer that was forgotten. So a producer
    whose batches without an outcome lie at or above it was certainly not forgotten with them.
    """

    def __init__(self, at: Producers | None = None, forgotten_upto: int = 0) -> None:
        ordered = sorted((at or {}).items(), key=lambda item: item[1].recent[-1:])
        self._states: dict[str, ProducerState] = dict(ordered)
        self.forgotten_upto = forgotten_upto

    def __len__(self) -> int:
        return len(self._states)

    def get(self, producer: str) -> ProducerState | None:
        return self._states.get(producer)

    def expected(self, producer: str, epoch: int) -> int:
        """The next sequence of this producer in this epoch."""
        state = self._states.get(producer)
        return state.last_sequence + 1 if state is not None and state.epoch == epoch else 0

    def inherit(self, inherited: Producers) -> None:
        """Takes over what the predecessors know; only before the first batch."""
        self._states.update(inherited)

    def apply(self, entry: Entry) -> None:
        """Applies what this log entry says."""
        self.apply_all((entry,))

    def apply_all(self, entries: Sequence[Entry]) -> None:
        """Applies the entries in turn. Faster than many calls of ``apply``."""
        pending: dict[str, tuple[BatchId, list[int], int]] = {}
        for entry in entries:
            if entry.inherited is not None:
                self.inherit(entry.inherited)
            if entry.forgotten:
                self._fold(pending)
                pending = {}
                self._forget(entry.forgotten)
            batch = entry.batch.id
            before = pending.pop(batch.producer, None)
            firsts = before[1] if before is not None and before[0].epoch == batch.epoch else []
            firsts.append(entry.first)
            pending[batch.producer] = (batch, firsts, entry.appended)
        self._fold(pending)

    def apply_chunk(self, info: ChunkInfo) -> None:
        """Moves on to the end of a chunk that was read from the filer."""
        if info.snapshot_at is None:
            self._states = dict(info.producers)
        else:
            for name in info.forgotten:
                self._states.pop(name, None)
            for name, state in info.producers.items():
                self._states.pop(name, None)
                self._states[name] = state
        self.forgotten_upto = max(self.forgotten_upto, info.forgotten_upto)

    def snapshot(self) -> Mapping[str, ProducerState]:
        return dict(self._states)

    def copy(self) -> ProducerMap:
        duplicate = ProducerMap(forgotten_upto=self.forgotten_upto)
        duplicate._states = dict(self._states)
        return duplicate

    def _fold(self, pending: Mapping[str, tuple[BatchId, list[int], int]]) -> None:
        for producer, (batch, firsts, appended) in pending.items():
            old = self._states.pop(producer, None)
            same = old if old is not None and old.epoch == batch.epoch else None
            recent = (*(same.recent if same is not None else ()), *firsts[-RECENT_BATCHES:])[-RECENT_BATCHES:]
            instance = batch.instance or (same.instance if same is not None else "")
            self._states[producer] = ProducerState(batch.epoch, batch.sequence, recent, instance, appended)

    def _forget(self, names: Iterable[str]) -> None:
        for name in names:
            state = self._states.pop(name, None)
            if state is not None and state.recent:
                self.forgotten_upto = max(self.forgotten_upto, state.recent[-1] + 1)
