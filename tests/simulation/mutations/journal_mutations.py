"""Mutations of what is done with journals: when entries count, who has a journal, and what may seal from one.

``MUTATIONS`` maps names to functions, as in ``mutations``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from simulation.mutations.mutation_table import MutationTable, Patch
from smq_broker.recovery import recovered_segment
from smq_broker.recovery.recovered_logs import RecoveredLogs
from smq_broker.recovery.recovered_segment import RecoveredSegment
from smq_broker.segments import hosted_segment
from smq_core.errors import NotHosted
from smq_core.model import layout_transitions
from smq_core.model.entities import Liveness, SealedSegment
from smq_core.replica.segment_replica import ReplicaState, SegmentReplica
from smq_core.sealing import chain_sealer
from smq_core.sealing.chain_sealer import UnsealedTail
from smq_core.sealing.seal_coordinator import SealCoordinator, SealEffect
from support.sim.brokers.journal import SimulatedDisk, SimulatedJournal
from support.sim.brokers.replication import ReplicaServer
from support.sim.histories.journal_scenario import JournalScenario
from support.sim.leaders.protocol_leader import SimulatedLeader

MUTATIONS = MutationTable()
mutation = MUTATIONS.add


def _replace_seal(patch: Patch, seal: Any) -> None:
    """In brokers and leaders."""
    for module in (chain_sealer, hosted_segment, recovered_segment):
        patch.setattr(module, "seal", seal)


# ---- when entries count


@mutation
def a_follower_replies_before_its_journal_has_it(patch: Patch) -> None:
    """A follower replies with the end of what its journal has."""

    def report_end(self: ReplicaServer) -> None:
        self.stream.down(("end", self.hosted.machine.end))

    patch.setattr(ReplicaServer, "report_end", report_end)


@mutation
def a_primary_counts_its_own_end_before_its_journal_has_it(patch: Patch) -> None:
    """The primary's own end counts for the watermark up to the end of its journal."""

    def advance(self: SegmentReplica) -> None:
        if self.state is ReplicaState.OPEN and self.config.is_primary:
            acked = [f.acked for f in self._followers.values()]
            self.watermark = max(self.watermark, min([self.end, *acked], default=self.end))

    patch.setattr(SegmentReplica, "_advance_watermark", advance)


# ---- who has a journal


@mutation
def a_process_that_ended_is_gone(patch: Patch) -> None:
    """A replica is gone only if its journal is, too."""
    original = JournalScenario.ended

    def ended(self: JournalScenario, broker: Any) -> None:
        original(self, broker)
        self._history.supervisor.died(broker.incarnation)

    patch.setattr(JournalScenario, "ended", ended)


@mutation
def a_newer_process_proves_former_ones_gone(patch: Patch) -> None:
    """A newer process may have the journals of former ones, and reports it."""
    original = SimulatedLeader._liveness

    def liveness(self: SimulatedLeader, replica: Any, last_report: Any) -> Liveness | None:
        newer = self._newest_process(replica) is not None
        return Liveness.GONE if newer else original(self, replica, last_report)

    patch.setattr(SimulatedLeader, "_liveness", liveness)


@mutation
def a_journal_counts_for_nothing(patch: Patch) -> None:
    """A process that recovered the journal seals in place of the former one."""
    original = SealCoordinator._may_hold_all

    def may_hold_all(self: SealCoordinator, incarnation: str, liveness: Any) -> bool:
        return original(self, incarnation, liveness) and liveness(incarnation) is not Liveness.RECOVERED

    patch.setattr(SealCoordinator, "_may_hold_all", may_hold_all)


@mutation
def only_the_last_journal_is_recovered(patch: Patch) -> None:
    """A process recovers the journals of all former processes, because none may have been sealed yet."""
    original = SimulatedDisk.former

    def former(self: SimulatedDisk) -> Any:
        for incarnation in list(self.journals)[:-1]:
            del self.journals[incarnation]
        return original(self)

    patch.setattr(SimulatedDisk, "former", former)


# ---- what the absence of a log proves


@mutation
def a_journal_that_is_not_whole_proves_that_nothing_was_acked(patch: Patch) -> None:
    """A segment without a log may have been hosted without one, or its log may be gone after a reboot."""
    original = SimulatedDisk.former

    def former(self: SimulatedDisk) -> Any:
        self.whole = dict.fromkeys(self.whole, True)
        return original(self)

    patch.setattr(SimulatedDisk, "former", former)


@mutation
def a_segment_without_a_journal_leaves_no_mark(patch: Patch) -> None:
    """If the journal of a segment cannot be created, its process leaves a mark before the first ack."""
    original = SimulatedDisk.open

    def open_(self: SimulatedDisk, config: Any) -> Any:
        whole = self.whole[config.incarnation]
        journal = original(self, config)
        self.whole[config.incarnation] = whole
        return journal

    patch.setattr(SimulatedDisk, "open", open_)


@mutation
def a_whole_journal_proves_nothing(patch: Patch) -> None:
    """A replica whose whole journal lacks the segment never hosted it, so nothing can be lost."""
    original = SealCoordinator.failed

    def failed(self: SealCoordinator, step: SealEffect, error: Exception, now: int) -> None:
        original(self, step, NotHosted(error.message) if isinstance(error, NotHosted) else error, now)

    patch.setattr(SealCoordinator, "failed", failed)


@mutation
def a_process_without_logs_leaves_no_journal(patch: Patch) -> None:
    """A whole journal says what was not hosted, also when all of its logs are sealed."""
    original = SimulatedDisk.former
    patch.setattr(SimulatedDisk, "former", lambda self: {name: held for name, held in original(self).items() if held})


# ---- what may seal


@mutation
def a_recovered_log_trusts_its_chain_end(patch: Patch) -> None:
    """Others may have written the chain since, and the producers' state is in the chain, so the sealer reads it."""

    def of_recovered(replica: SegmentReplica, snapshot_at: int) -> UnsealedTail:
        return UnsealedTail(start=replica.chain_end, entries=tuple(replica.tail), knows_chain_end=True)

    patch.setattr(UnsealedTail, "of_recovered", staticmethod(of_recovered))


@mutation
def entries_after_a_gap_are_sealed(patch: Patch) -> None:
    """A sealer writes only entries that follow the chain's end."""

    def entries_from(entries: Any, offset: int, max_bytes: int) -> Any:
        return tuple(entry for entry in entries if entry.first >= offset)

    patch.setattr(chain_sealer, "_entries_from", entries_from)


@mutation
def a_gap_is_not_noticed(patch: Patch) -> None:
    """A journal that begins after the chain's end lacks a part."""
    original = RecoveredSegment.check_complete

    def check_complete(self: RecoveredSegment, known_watermark: int = 0) -> None:
        first, self._recovered.first = self._recovered.first, 0
        try:
            original(self, known_watermark)
        finally:
            self._recovered.first = first

    patch.setattr(RecoveredSegment, "check_complete", check_complete)


@mutation
def an_incomplete_journal_seals_like_a_complete_one(patch: Patch) -> None:
    """An incomplete journal seals only if nobody may have more."""
    original = RecoveredSegment.check_complete

    def check_complete(self: RecoveredSegment, known_watermark: int = 0) -> None:
        if self._recovered.complete:
            original(self, known_watermark)

    patch.setattr(RecoveredSegment, "check_complete", check_complete)


@mutation
def a_failed_journal_seals_like_a_complete_one(patch: Patch) -> None:
    """A journal whose writes failed is marked, because it looks complete."""
    original = SimulatedJournal.recover

    def recover(self: SimulatedJournal, dice: Any) -> Any:
        self.broken = False
        return original(self, dice)

    patch.setattr(SimulatedJournal, "recover", recover)


@mutation
def an_old_journal_is_not_compared_with_the_known_watermark(patch: Patch) -> None:
    """The watermark that the leader knows shows that a journal which looks complete is too old."""
    original = RecoveredSegment.check_complete
    patch.setattr(RecoveredSegment, "check_complete", lambda self, known_watermark=0: original(self))


@mutation
def an_incomplete_journal_seals_while_others_may_have_more(patch: Patch) -> None:
    """While another replica's process or journal may come back, the seal waits for it."""
    original = SealCoordinator._may_hold_all

    def may_hold_all(self: SealCoordinator, incarnation: str, liveness: Any) -> bool:
        incomplete = any(attempt.recovered_end is not None for attempt in self._attempts.values())
        waits = liveness(incarnation) in (Liveness.SUSPECT, Liveness.ENDED)
        return original(self, incarnation, liveness) and not (incomplete and waits)

    patch.setattr(SealCoordinator, "_may_hold_all", may_hold_all)


@mutation
def a_loss_ends_at_the_known_watermark(patch: Patch) -> None:
    """More may have been acked than the leader knows, so a loss is open-ended."""
    original = chain_sealer.seal

    def seal(segment: str, held: UnsealedTail, **known: Any) -> Any:
        return original(segment, held, **(known | {"at_least": False}))

    _replace_seal(patch, seal)


@mutation
def an_incomplete_journal_hides_its_loss(patch: Patch) -> None:
    """What an incomplete journal lacks is reported as lost."""
    original = chain_sealer.seal

    def seal(segment: str, held: UnsealedTail, **known: Any) -> Any:
        return original(segment, held, **({} if held.entries else known))

    _replace_seal(patch, seal)


@mutation
def an_index_forgets_that_a_loss_is_open_ended(patch: Patch) -> None:
    """The index reports the loss that the seal chunk has."""
    original = layout_transitions.sealed_entry

    def with_an_end(*seal: Any) -> SealedSegment:
        entry = original(*seal)
        return entry if entry.lost is None else replace(entry, lost=replace(entry.lost, at_least=False))

    patch.setattr(layout_transitions, "sealed_entry", with_an_end)


@mutation
def a_possible_loss_of_a_segment_that_has_all(patch: Patch) -> None:
    """A seal reports a loss only if nobody has all."""
    original = chain_sealer.seal
    _replace_seal(patch, lambda segment, held, **known: original(segment, held, **(known | {"at_least": True})))


@mutation
def recovered_logs_are_dropped_before_the_seal(patch: Patch) -> None:
    """A recovered log stays until its segment is sealed."""

    patch.setattr(RecoveredLogs, "_gone_reason", lambda self, held: "it is not sealed yet")
