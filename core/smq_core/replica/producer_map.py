"""The state of a log's producers, computed from the log alone, so that replicas agree on it at every offset."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from smq_core.model.chunk_info import RECENT_BATCHES, ChunkInfo, Producers, ProducerState
from smq_core.model.entities import Micros
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
        self._apply_decisions(entry)
        if isinstance(entry.batch.id, BatchId):
            self._fold(entry.batch.id, (entry.first,), entry.appended)

    def apply_all(self, entries: Sequence[Entry]) -> None:
        """Applies the entries in turn. Faster than many calls of ``apply``."""
        pending: defaultdict[str, list[tuple[BatchId, Entry]]] = defaultdict(list)
        for entry in entries:
            if entry.forgotten or entry.inherited is not None:
                self._fold_each(pending)
                pending.clear()
                self._apply_decisions(entry)
            if isinstance(entry.batch.id, BatchId):
                pending[entry.batch.id.producer].append((entry.batch.id, entry))
        self._fold_each(pending)

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

    @staticmethod
    def of_snapshot(states: Mapping[str, ProducerState], forgotten_upto: int) -> ProducerMap:
        """The map with these states, which are in the order of their last batches, as those of a ``snapshot`` are."""
        producers = ProducerMap(forgotten_upto=forgotten_upto)
        producers._states = dict(states)
        return producers

    def copy(self) -> ProducerMap:
        return ProducerMap.of_snapshot(self._states, self.forgotten_upto)

    def _apply_decisions(self, entry: Entry) -> None:
        """Applies what the primary decided before the entry's batch."""
        if entry.inherited is not None:
            self.inherit(entry.inherited)
        if entry.forgotten:
            self._forget(entry.forgotten)

    def _fold_each(self, pending: Mapping[str, Sequence[tuple[BatchId, Entry]]]) -> None:
        """Applies the batches of each of these producers."""
        for batches in sorted(pending.values(), key=lambda batches: batches[-1][1].first):
            last, last_entry = batches[-1]
            latest = [entry.first for id_, entry in batches[-RECENT_BATCHES:] if id_.epoch == last.epoch]
            self._fold(last, tuple(latest), last_entry.appended)

    def _fold(self, batch: BatchId, firsts: tuple[int, ...], appended: Micros) -> None:
        """Applies batches of one producer, of which ``batch`` is the last; ``firsts`` are the offsets of the latest."""
        old = self._states.pop(batch.producer, None)
        if old is not None and old.epoch == batch.epoch:
            firsts = (*old.recent, *firsts)[-RECENT_BATCHES:]
            instance = batch.instance or old.instance
        else:
            instance = batch.instance
        self._states[batch.producer] = ProducerState(
            epoch=batch.epoch, last_sequence=batch.sequence, recent=firsts, instance=instance, appended=appended
        )

    def _forget(self, names: Iterable[str]) -> None:
        for name in names:
            state = self._states.pop(name, None)
            if state is not None and state.recent:
                self.forgotten_upto = max(self.forgotten_upto, state.recent[-1] + 1)
