"""Seals a segment's chunk chain: walks it, appends the entries beyond its end, and creates the seal chunk.

The procedure is a generator without IO: it yields requests to the store and receives the answers, so that threads and
the simulation run the same code. Any number of sealers may run at once. Create-only PUTs decide between them, and the
first seal chunk in the chain is authoritative. The caller resolves PUTs of unknown outcome by reading back first
(docs/protocol/filer.md, "Conditional writes"), and may stop the procedure anywhere.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from smq_core.model.chunk_info import ChunkInfo, SealOutcome
from smq_core.model.loss import Loss
from smq_core.replica.chunk_planning import entries_of_next_chunk
from smq_core.replica.log_entries import MAX_CHUNK_BYTES, ChunkWrite, Entry
from smq_core.replica.log_state import LogState
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
    """Create the seal chunk that fixes this outcome. The answer is as for ``WriteChunk``."""

    outcome: SealOutcome

    def info(self, writer: str, nonce: str, schema_version: int = 0) -> ChunkInfo:
        """The seal chunk's metadata."""
        fixed = self.outcome
        return ChunkInfo(
            segment=fixed.segment,
            first=fixed.end,
            rows=0,
            writer=writer,
            nonce=nonce,
            sealed=True,
            producers=fixed.producers,
            lost=fixed.lost,
            forgotten_upto=fixed.forgotten_upto,
            uninherited=fixed.uninherited,
            partitions=fixed.partitions,
            kafka_producers=fixed.kafka_producers,
            schema_version=schema_version,
        )


StoreRequest = ReadChunk | WriteChunk | WriteSeal
StoreReply = ChunkInfo | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsealedTail:
    """The entries that a sealer holds, contiguous from ``start``, and the log's ``state`` at ``start``.

    ``uninherited`` names the segment's predecessors if the sealer does not know what the segment takes over from them.
    The first entry of the log says it, so this matters only for a segment that ends empty.
    """

    start: int = 0
    state: LogState = field(default_factory=LogState)
    entries: tuple[Entry, ...] = ()
    knows_chain_end: bool = False
    """Only this sealer wrote the chain, apart from other sealers."""
    uninherited: tuple[str, ...] = ()

    @staticmethod
    def of(replica: SegmentReplica) -> UnsealedTail:
        at_start = replica.end == 0 and replica.inherits
        return UnsealedTail(
            start=replica.chain_end,
            state=replica.state_at_end() if at_start else replica.state_at_chain_end(),
            entries=tuple(replica.tail),
            knows_chain_end=replica.config.is_primary,
            uninherited=() if replica.inherits else replica.config.predecessors,
        )

    @staticmethod
    def of_recovered(replica: SegmentReplica, snapshot_at: int) -> UnsealedTail:
        """What a journal holds. ``snapshot_at`` is where the walk begins: 0, or a chunk with all producers' state."""
        return UnsealedTail(
            start=snapshot_at,
            state=replica.state_at_start(),
            entries=tuple(replica.tail),
            uninherited=replica.config.predecessors,
        )


def seal(
    segment: str,
    held: UnsealedTail,
    *,
    known_watermark: int | None = None,
    at_least: bool = False,
    max_chunk_bytes: int = MAX_CHUNK_BYTES,
) -> Generator[StoreRequest, StoreReply, SealOutcome]:
    """Seals the segment and returns the outcome that the first seal chunk fixed.

    A sealer that holds less than the chain seals at the chain's end. One that does not hold all that was acked passes
    the highest watermark that it knows (``known_watermark``): the messages between the segment's end and that are
    recorded as lost. ``at_least`` says that more may have been acked; then a possible loss is recorded in any case.

    It reads a chunk before it writes one of that name, except where only it can have written the chain. If such a PUT
    finds another object, it reads after all.
    """
    at, state, must_read = held.start, held.state.copy(), not held.knows_chain_end
    while True:
        found = (yield ReadChunk(at)) if must_read else None
        if isinstance(found, ChunkInfo):
            if found.sealed:
                return found.outcome
            at = found.end
            state.apply_chunk(found)
            continue
        must_read = False
        missing_entries = _entries_from(held.entries, at, max_chunk_bytes)
        if missing_entries:
            after = state.copy()
            after.apply_all(missing_entries)
            chunk = ChunkWrite(
                first=at,
                entries=missing_entries,
                producers=after.producers.snapshot(),
                forgotten_upto=after.producers.forgotten_upto,
                partitions=after.partition_offsets(),
                kafka_producers=after.kafka_producers.snapshot(),
            )
            if (yield WriteChunk(chunk)) is True:
                at, state = chunk.end, after
            else:
                must_read = True
            continue
        lost = Loss(at, max(at, known_watermark or 0), at_least)
        uninherited = held.uninherited if at == 0 else ()
        outcome = SealOutcome(
            segment=segment,
            end=at,
            producers=state.producers.snapshot(),
            lost=None if lost.is_empty else lost,
            forgotten_upto=state.producers.forgotten_upto,
            uninherited=uninherited,
            partitions=None if uninherited else state.partition_offsets(),
            kafka_producers={} if uninherited else state.kafka_producers.snapshot(),
        )
        if (yield WriteSeal(outcome)) is True:
            return outcome
        must_read = True


def _entries_from(entries: Sequence[Entry], offset: int, max_bytes: int) -> tuple[Entry, ...]:
    """The next entries from ``offset``, which is the start of an entry because chunks end where entries end.

    None if the entries begin later, which happens if the first part of a journal is missing.
    """
    begin = bisect_left(entries, offset, key=lambda entry: entry.first)
    if begin == len(entries) or entries[begin].first > offset:
        return ()
    return entries_of_next_chunk(islice(entries, begin, None), max_bytes)
