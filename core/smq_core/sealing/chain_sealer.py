"""Seals a segment's chunk chain: walks it, appends the entries beyond its end, and creates the seal chunk.

The procedure is a generator without IO: it yields requests to the store and receives the answers, so that threads and
the simulation run the same code. Any number of sealers may run at once. Create-only PUTs decide between them, and the
first seal chunk in the chain is authoritative. The caller resolves PUTs of unknown outcome by reading back first
(docs/protocol.md, "Conditional writes"), and may stop the procedure anywhere.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

from smq_core.model.entities import ChunkInfo, Producers, SealOutcome
from smq_core.replica.log_entries import MAX_CHUNK_BYTES, ChunkWrite, Entry
from smq_core.replica.producer_map import ProducerMap
from smq_core.replica.segment_replica import SegmentReplica


@dataclass(frozen=True, slots=True)
class ReadChunk:
    """Read the metadata of the chunk that begins at ``first``. The answer is a ChunkInfo, or None if there is none."""

    first: int


@dataclass(frozen=True, slots=True)
class WriteChunk:
    """Create this chunk. The answer is True if it exists and is ours, False if another writer's object has its name."""

    chunk: ChunkWrite


@dataclass(frozen=True, slots=True)
class WriteSeal:
    """Create the seal chunk at ``end``. The answer is as for ``WriteChunk``."""

    end: int
    producers: Producers
    lost: tuple[int, int] | None = None


StoreRequest = ReadChunk | WriteChunk | WriteSeal
StoreReply = ChunkInfo | bool | None


@dataclass(frozen=True, slots=True)
class UnsealedTail:
    """The entries that a sealer holds, contiguous from ``start``, and the producers' state at ``start``."""

    start: int = 0
    producers: Producers = field(default_factory=dict)
    entries: tuple[Entry, ...] = ()
    knows_chain_end: bool = False
    """Only this sealer wrote the chain, apart from other sealers."""

    @staticmethod
    def of(replica: SegmentReplica) -> UnsealedTail:
        known = replica.config.is_primary
        return UnsealedTail(replica.chain_end, replica.chain_producers(), tuple(replica.tail), known)


def seal(
    segment: str, held: UnsealedTail, *, known_watermark: int | None = None, max_chunk_bytes: int = MAX_CHUNK_BYTES
) -> Generator[StoreRequest, StoreReply, SealOutcome]:
    """Seals the segment and returns the outcome that the first seal chunk fixed.

    A sealer that holds less than the chain seals at the chain's end. One that holds nothing may pass the highest
    watermark that it knows (``known_watermark``): the messages between the chain's end and that are recorded as lost.

    It reads a chunk before it writes one of that name, except where only it can have written the chain. If such a PUT
    finds another object, it reads after all.
    """
    at, producers, must_read = held.start, held.producers, not held.knows_chain_end
    while True:
        found = (yield ReadChunk(at)) if must_read else None
        if isinstance(found, ChunkInfo):
            if found.sealed:
                return SealOutcome(segment, found.first, found.producers, found.lost)
            at, producers = found.end, found.producers
            continue
        must_read = False
        missing_entries = _entries_from(held.entries, at, max_chunk_bytes)
        if missing_entries:
            chunk = _chunk(at, producers, missing_entries)
            if (yield WriteChunk(chunk)) is True:
                at, producers = chunk.end, chunk.producers
            else:
                must_read = True
            continue
        lost = (at, known_watermark) if known_watermark is not None and known_watermark > at else None
        if (yield WriteSeal(at, producers, lost)) is True:
            return SealOutcome(segment, at, producers, lost)
        must_read = True


def _entries_from(entries: Sequence[Entry], offset: int, max_bytes: int) -> tuple[Entry, ...]:
    """The next entries from ``offset``, which is the start of an entry because chunks end where entries end."""
    taken: list[Entry] = []
    size = 0
    for entry in entries:
        if entry.first < offset:
            continue
        if taken and size + entry.batch.nbytes > max_bytes:
            break
        taken.append(entry)
        size += entry.batch.nbytes
    return tuple(taken)


def _chunk(first: int, producers: Producers, entries: tuple[Entry, ...]) -> ChunkWrite:
    after = ProducerMap(producers)
    after.apply_all([(entry.batch.id, entry.first) for entry in entries])
    return ChunkWrite(first, entries, after.snapshot())
