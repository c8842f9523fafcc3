"""What may be lost at a seal: only what no replica has any more, neither a process nor its journal.

An older copy of a journal looks complete, so nobody can see its loss, unless a leader that requested the seal knew of
a watermark that shows it. Every other loss must be in the range that the seal reports, and that range must be true. It
begins at the segment's end, and has nothing that was never acked. It is there only if nobody has all, and no whole
journal of a replica shows that this one never hosted the segment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smq_core import invariants as inv
from smq_core.invariants import Violation
from smq_core.model.chunk_info import ChunkInfo
from smq_core.model.entities import Durability
from smq_core.model.loss import Loss
from smq_core.sealing.seal_coordinator import RequestSeal

if TYPE_CHECKING:
    from support.sim.brokers.hosted_segment import SimulatedSegment
    from support.sim.checks.protocol_checker import ProtocolChecker
    from support.sim.histories.journal_scenario import JournalScenario


class LossChecker:
    """``lost`` has the end of each segment that lost acked messages; ``undetectable`` those where nothing shows it."""

    def __init__(self, checker: ProtocolChecker) -> None:
        self.lost: dict[str, int] = {}
        self.undetectable: set[str] = set()
        self.accepted: set[str] = set()
        """The segments whose loss an administrator accepted."""
        self.journals: JournalScenario
        self._checker = checker
        self._rolled_back: dict[str, list[tuple[str, int]]] = {}
        """By segment: the former processes whose journals are too old and are sealed, and the known watermark."""

    # ---- requests

    def seal_requested(self, request: RequestSeal, known: int | None) -> None:
        """A leader that knows this watermark requests a seal."""
        if request.segment not in self._checker.seals and (known or 0) > (request.known_watermark or 0):
            self._broken(request.segment, f"the leader knows {known}, and tells {request.known_watermark}")

    def sealing(self, recovered: Any, known_watermark: int) -> None:
        """A process begins to seal from a recovered log, and knows whether it is incomplete."""
        words = f"seals from the journal of {recovered.incarnation}, which ends at {recovered.machine.end}"
        self._checker.world.note("checker", recovered.name, words)
        if recovered._recovered.journal.rolled_back and recovered._known_loss is None:
            self._rolled_back.setdefault(recovered.name, []).append((recovered.incarnation, known_watermark))

    # ---- seals

    def sealed(self, info: ChunkInfo) -> None:
        """What was acked beyond the seal is lost, which may be only if nobody has it."""
        name, end = info.segment, info.first
        checker = self._checker
        holders = self.holders(name)
        acked = checker.acked_ends.get(name, 0)
        if info.lost is not None:
            self._check_report(name, end, info.lost)
        if acked <= end:
            return
        if checker.durability[name] is not Durability.REPLICATED:
            self._broken(name, f"sealed at {end}, acked up to {acked}, and Stored loses nothing")
        undetectable = any(who == info.writer and bound <= end for who, bound in self._rolled_back.get(name, ()))
        if holders and not undetectable and name not in self.accepted:
            self._broken(name, f"sealed at {end}, acked up to {acked}, and these have it: {holders}")
        self.lost[name] = end
        if undetectable:
            self.undetectable.add(name)
        how = "of which nobody knows" if undetectable else "because every replica and journal is gone"
        checker.world.note("checker", name, f"a loss from {end} on, {how}")

    @property
    def reported(self) -> dict[str, Loss]:
        """What the seals report as lost. Nothing can show an undetectable loss."""
        seals = self._checker.seals
        found = {name: outcome.lost for name, outcome in seals.items() if outcome.lost is not None}
        return found | {name: Loss(self.lost[name], self.lost[name], True) for name in self.undetectable}

    def _check_report(self, name: str, end: int, lost: Loss) -> None:
        hosted = self._checker.hosted_segments.get(name, [])
        watermark = max((h.machine.watermark for h in hosted), default=0)
        self._checker.must(inv.loss_is_true(name, end, lost, watermark))
        needless = {h.broker.incarnation for h in hosted} & set(self.holders(name))
        if self._checker.durability[name] is Durability.STORED or (needless and name not in self.accepted):
            words = f"it reports the loss of {lost}, but {sorted(needless)} have all"
            self._checker.must([Violation(1, name, words)])
        opened = {h.broker.incarnation for h in hosted}
        proofs = [i for i in self._checker.everyone[name] if i not in opened and self.journals.is_whole(i)]
        if proofs and name not in self.accepted:
            words = f"it reports the loss of {lost}, but the journals of {proofs} show that nothing was acked"
            self._checker.must([Violation(1, name, words)])

    def holders(self, name: str) -> list[str]:
        """The incarnations that may still have all that was acked. One that never hosted the segment acked nothing."""
        hosted = {h.broker.incarnation: h for h in self._checker.hosted_segments.get(name, [])}
        return [i for i in self._checker.everyone[name] if i not in hosted or _has_all(hosted[i])]

    def _broken(self, subject: str, what: str) -> None:
        self._checker.must([Violation(6, subject, what)])


def _has_all(hosted: SimulatedSegment) -> bool:
    if hosted.process.alive:
        return True
    journal = hosted.journal.journal if hosted.journal is not None else None
    return journal is not None and journal.intact
