"""How a segment's chain is ended: walk it, add what is held beyond its end, create the seal chunk.

A procedure without IO, written as a generator: it yields what it wants of the store and is sent the answer, so that
threads and the simulation drive the same code. Any number of sealers may run at once; create-only PUTs decide, and
the first seal chunk in the chain is the truth. Whoever drives it resolves unclear PUTs by reading back first
(docs/protocol.md, "Conditional writes"), and may stop it anywhere.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

from smq_core.entries import LARGEST_CHUNK, ChunkWrite, Entry
from smq_core.model import ChunkInfo, Producers, SealOutcome
from smq_core.producers import ProducerMap
from smq_core.replica import SegmentReplica


@dataclass(frozen=True, slots=True)
class ReadChunk:
    """Wants the metadata of the chunk that begins at ``first``: a ChunkInfo, or None when there is none."""

    first: int


@dataclass(frozen=True, slots=True)
class WriteChunk:
    """Wants this chunk created: True when it is now there and mine, False when another's object has its name."""

    chunk: ChunkWrite


@dataclass(frozen=True, slots=True)
class WriteSeal:
    """Wants the seal chunk created at ``end``: True or False as above."""

    end: int
    producers: Producers
    lost: tuple[int, int] | None = None


Wish = ReadChunk | WriteChunk | WriteSeal
Answer = ChunkInfo | bool | None


@dataclass(frozen=True, slots=True)
class Held:
    """What a sealer holds: entries contiguous from ``start``, and the producers' state there."""

    start: int = 0
    producers: Producers = field(default_factory=dict)
    entries: tuple[Entry, ...] = ()
    knows_end: bool = False
    """Nobody but this sealer has written the chain, unless somebody else seals too."""

    @staticmethod
    def of(replica: SegmentReplica) -> Held:
        known = replica.config.is_primary
        return Held(replica.chain_end, replica.chain_producers(), tuple(replica.tail), known)


def seal(
    segment: str, held: Held, *, known_watermark: int | None = None, max_chunk_bytes: int = LARGEST_CHUNK
) -> Generator[Wish, Answer, SealOutcome]:
    """Seals the segment and returns the outcome that the first seal chunk fixed.

    A sealer that holds less than the chain seals at the chain's end. One that holds nothing may say up to where it
    knows that messages were acked (``known_watermark``): what lies between is recorded as lost.

    Where the chain ends it looks first, unless it must be the one who wrote that far; a PUT that comes second tells
    it to look after all.
    """
    at, producers, look = held.start, held.producers, not held.knows_end
    while True:
        found = (yield ReadChunk(at)) if look else None
        if isinstance(found, ChunkInfo):
            if found.sealed:
                return SealOutcome(segment, found.first, found.producers, found.lost)
            at, producers = found.end, found.producers
            continue
        look = False
        beyond = _entries_from(held.entries, at, max_chunk_bytes)
        if beyond:
            chunk = _chunk(at, producers, beyond)
            if (yield WriteChunk(chunk)) is True:
                at, producers = chunk.end, chunk.producers
            else:
                look = True
            continue
        lost = (at, known_watermark) if known_watermark is not None and known_watermark > at else None
        if (yield WriteSeal(at, producers, lost)) is True:
            return SealOutcome(segment, at, producers, lost)
        look = True


def _entries_from(entries: Sequence[Entry], offset: int, max_bytes: int) -> tuple[Entry, ...]:
    """Some of the entries, contiguous from ``offset``; chunks end at entries' ends, so ``offset`` is one."""
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
