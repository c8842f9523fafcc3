"""A log that a process recovered from the journal of a former one. It can only seal, and is dropped after the seal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smq_core.errors import JournalIncomplete, StoreUnavailable
from smq_core.model.chunk_info import SealOutcome
from smq_core.model.entities import Layout, number_of
from smq_core.replica.segment_replica import SegmentReplica
from smq_core.sealing import chain_sealer
from smq_core.sealing.chain_sealer import UnsealedTail
from support.sim.brokers.journal import RecoveredRecords, SimulatedJournal
from support.sim.engine.world import MS, Future, Steps
from support.sim.filer.chunk_chain import SimulatedChain
from support.sim.filer.object_store import SimulatedStoreFaults

if TYPE_CHECKING:
    from support.sim.brokers.broker import SimulatedBroker


# Longer than an answer of the store may be old.
STALE = SimulatedStoreFaults().stale + 500 * MS


class RecoveredLog:
    """``complete`` is false if something shows that the former process had more."""

    def __init__(self, broker: SimulatedBroker, journal: SimulatedJournal, found: RecoveredRecords) -> None:
        self.broker = broker
        self.journal = journal
        self.name = journal.config.segment
        self.incarnation = journal.config.incarnation
        self.machine = SegmentReplica.recovered(journal.config, found.entries, found.watermark)
        self.complete = found.complete
        self._first = found.first
        self.outcome: SealOutcome | None = None
        self._chain = SimulatedChain(broker.store, broker.process, self.name, broker.settings.timeout)
        self._sealing: Future | None = None

    def seal(self, known_watermark: int | None, *, accept_incomplete: bool) -> Steps:
        """Seals once; a repeated request waits for the same run. Raises JournalIncomplete, StoreUnavailable."""
        if self._sealing is None:
            self._sealing = self.broker.process.start(self._seal(known_watermark, accept_incomplete))
        try:
            return (yield self._sealing)
        finally:
            self._sealing = None

    def _seal(self, known_watermark: int | None, accept_incomplete: bool) -> Steps:
        chain_end, outcome = yield from self._walk()
        if outcome is None and self._has_gap(chain_end):
            yield STALE  # the store may have shown an older chain
            chain_end, outcome = yield from self._walk()
        if outcome is None:
            known = max(known_watermark or 0, self.machine.watermark)
            incomplete = False
            try:
                self.check_complete(chain_end, known)
            except JournalIncomplete:
                if not accept_incomplete:
                    raise
                incomplete = True
            self.broker.checker.losses.sealing(self, known_watermark, incomplete)
            words = f"seals from the journal of {self.incarnation}, which ends at {self.machine.end}"
            self.broker.world.note(self.broker.process.name, self.name, words)
            tail = UnsealedTail.of_recovered(self.machine, 0)
            outcome = yield from self._chain.drive(
                chain_sealer.seal(self.name, tail, known_watermark=known, at_least=incomplete)
            )
        self.outcome = outcome
        return outcome

    def check_complete(self, chain_end: int, known_watermark: int) -> None:
        """Raises JournalIncomplete if the former process had more than journal and chain have together."""
        machine = self.machine
        gap = self._has_gap(chain_end)
        end = chain_end if gap else max(chain_end, machine.end)
        if gap or not self.complete or end < known_watermark:
            raise JournalIncomplete(
                f"the journal of {self.incarnation} lacks a part of {self.name}", end=end, watermark=machine.watermark
            )

    def _has_gap(self, chain_end: int) -> bool:
        return self._first > chain_end

    def _walk(self) -> Steps:
        """The chain's end, and the outcome if the chain is sealed."""
        at = 0
        while (info := (yield from self._chain.info(at))) is not None:
            if info.sealed:
                return at, info.outcome
            at = info.end
        return at, None

    def is_needless(self, layout: Layout | None) -> Steps:
        """Whether nobody will ever request its seal: the segment is sealed, or no layout will name it any more."""
        if self.outcome is not None:
            return True
        if layout is not None and layout.next_number > number_of(self.name) and self.name not in layout:
            return True
        try:
            _, outcome = yield from self._walk()
        except StoreUnavailable:
            yield 200 * MS
            return False
        return outcome is not None
