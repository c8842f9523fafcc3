"""One segment from the journal of a process that has ended, hosted in its place until it is sealed."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pyarrow as pa

from smq_broker.journal.recovery import RecoveredLog
from smq_broker.memory.accounting import MemoryAccounting
from smq_broker.rows.blocks import ArrowBlock
from smq_broker.rows.payloads import Compactor, compact, payload_spans
from smq_broker.rows.replication_messages import decode_entries
from smq_broker.rows.small_batches import rows_of
from smq_broker.runtime.clock import Clock
from smq_broker.runtime.pauses import PauseCounter
from smq_broker.segments.hosted_segment import HostedSegment
from smq_core.errors import InvalidRequest, JournalIncomplete
from smq_core.model.chunk_info import SealOutcome
from smq_core.model.entities import Segment, Topic
from smq_core.replica.log_entries import Entry, ReplicaConfig
from smq_core.replica.segment_replica import SegmentReplica
from smq_core.sealing.chain_sealer import StoreReply, StoreRequest, UnsealedTail, seal
from smq_storage.chunks.chain import ChunkChain


class RecoveredSegment(HostedSegment):
    """A fenced replica with the incarnation of the former process.

    Its tail is read from the files only when it is sealed, and costs page cache instead of memory.
    """

    def __init__(
        self, *, incarnation: str, topic: Topic, segment: Segment, log: RecoveredLog, chain: ChunkChain, clock: Clock
    ) -> None:
        self._recovered = log
        self._known_loss: int | None = None
        self._has_gap = False
        """Whether the filer's chain ended before the journal's beginning when it was read last."""
        super().__init__(
            topic=topic,
            segment=segment,
            incarnation=incarnation,
            chain=chain,
            memory=MemoryAccounting(1 << 40),  # nothing is reserved
            clock=clock,
            pauses=PauseCounter(lambda: 0.0),
            on_chunk_due=_ignore,
            on_change=_ignore,
        )
        self.fenced.set()

    @property
    def complete(self) -> bool:
        """Whether nothing is known to be missing."""
        return self._recovered.complete and not self._has_gap

    def check_complete(self, known_watermark: int = 0) -> None:
        """Raises JournalIncomplete unless journal and filer have all that this replica counted for the watermark.

        Messages below ``known_watermark`` were acked. May raise StoreUnavailable, CorruptChunk.
        """
        log = self._recovered
        problem = log.problem
        if problem is None and (log.first or log.end < known_watermark):
            chain_end = self.chain.end()
            # Also if it has no records: its first file is named by what the former ones had.
            self._has_gap = log.first > chain_end
            if self._has_gap:
                problem = f"it begins at message {log.first}, and the filer ends at {chain_end}"
            elif max(log.end, chain_end) < known_watermark:
                problem = f"it ends at {log.end}, but messages below {known_watermark} were acked"
        if problem is not None:
            raise JournalIncomplete(
                f"the journal of {self.name} at {self.incarnation} is incomplete: {problem}",
                end=log.end,
                watermark=log.watermark,
            )

    def accept_incomplete(self, known_watermark: int = 0) -> None:
        """The next seal takes what there is, and records that messages beyond it may be lost.

        May raise StoreUnavailable, CorruptChunk.
        """
        try:
            self.check_complete(known_watermark)
        except JournalIncomplete:
            self._known_loss = max(known_watermark, self._recovered.watermark)

    def begin_seal(self) -> Generator[StoreRequest, StoreReply, SealOutcome]:
        """May raise StoreUnavailable, CorruptChunk, and JournalIncomplete if the rows cannot be decoded."""
        replica = SegmentReplica.recovered(self.machine.config, self._entries(), self._recovered.watermark)
        held = UnsealedTail.of_recovered(replica, self.chain.snapshot_hint())
        return seal(self.name, held, known_watermark=self._known_loss, at_least=self._known_loss is not None)

    def chain_hint(self) -> int | None:
        return None

    def _new_replica(self, config: ReplicaConfig) -> SegmentReplica:
        replica = SegmentReplica.recovered(config, (), self._recovered.watermark)
        replica.end = max(self._recovered.end, replica.watermark)
        return replica

    def release(self) -> None:
        """Frees the mapped files, after the seal."""
        self._recovered.release()

    def _entries(self) -> tuple[Entry, ...]:
        log = self._recovered
        found: list[Entry] = []
        compactor = Compactor()
        try:
            for header, batch in log.messages(self.wire.message):
                block = rows_of(header, batch) or ArrowBlock(self.wire.empty)
                entries = decode_entries(header, block)
                found.extend(entries)
                if block.is_small:
                    # A record batch per small record would cost more than its rows.
                    small = compactor.add(payload_spans(entries))
                    if small is not None:
                        compact(small)
        except (pa.ArrowException, OSError, EOFError, InvalidRequest) as error:
            # The checksums were right, so the writer had another format.
            log.problem, log.end = f"it cannot be decoded: {error}", found[-1].end if found else log.first
            if self._known_loss is None:
                self.check_complete()
        return tuple(found)


def _ignore(*_: Any) -> None: ...
