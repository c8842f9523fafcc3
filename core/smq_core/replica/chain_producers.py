"""The producers' state at the end of a segment's chain, as the primary writes it into the next chunk."""

from __future__ import annotations

from collections.abc import Sequence

from smq_core.replica.log_entries import ChunkWrite, Entry, ProducerLimits
from smq_core.replica.producer_map import ProducerMap


class ChainProducers:
    """Decides which chunks are snapshots: they have the state of all producers, the others only what has changed."""

    def __init__(self, limits: ProducerLimits) -> None:
        self._limits = limits
        self._at_chain_end = ProducerMap()
        self._snapshot_at: int | None = None
        self._chunks_since_snapshot = 0

    def next_chunk(self, first: int, entries: tuple[Entry, ...]) -> ChunkWrite:
        """The chunk of these entries, which begin at the chain's end, with the state after them."""
        producers = self._at_chain_end.copy()
        producers.apply_all(entries)
        complete = (
            len(producers) <= self._limits.snapshot_below or self._chunks_since_snapshot >= self._limits.snapshot_every
        )
        return ChunkWrite(
            first=first,
            entries=entries,
            producers=producers.snapshot(),
            forgotten_upto=producers.forgotten_upto,
            snapshot_at=None if complete else self._snapshot_at,
        )

    def chunk_written(self, chunk: ChunkWrite) -> None:
        """The chunk is certainly in the filer. It begins where the chain ended."""
        self._at_chain_end = ProducerMap.of_snapshot(chunk.producers, chunk.forgotten_upto)
        if chunk.snapshot_at is None:
            self._snapshot_at, self._chunks_since_snapshot = chunk.first, 0
        self._chunks_since_snapshot += 1

    def chain_extended(self, entries: Sequence[Entry]) -> None:
        """These entries are in the chain now, in chunks that another replica has written."""
        self._at_chain_end.apply_all(entries)

    def at_chain_end(self) -> ProducerMap:
        return self._at_chain_end.copy()
