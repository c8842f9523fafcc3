"""An administrator pauses autoscaling during a history and makes manual requests. Both end when the writing ends.

During the pause, no leader that has seen it splits or merges because of load. Failovers, drains, rolls and manual
requests continue. In a history without faults each request is carried out soon, or rejected with a reason, unless the
leader that received it is killed.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from smq_core.invariants import Violation
from smq_core.model.decision import Decision, DecisionAction
from smq_core.model.entities import Layout
from smq_core.model.segment_changes import SegmentChange
from support.sim.engine.world import SECOND, Process
from support.sim.filer.chunk_chain import LAYOUT

if TYPE_CHECKING:
    from support.sim.histories.elastic import ElasticHistory
    from support.sim.leaders.protocol_leader import SimulatedLeader

MANUAL_ACTIONS = ("split", "merge", "move", "roll")
BY_LOAD = (DecisionAction.SPLIT, DecisionAction.MERGE)
SOON = 10 * SECOND


class AutoscalingPauseScenario:
    """``drawn`` is true if this history has a pause, drawn from a separate random generator. ``on``: paused now."""

    def __init__(self, history: ElasticHistory) -> None:
        self.history = history
        self.on = False
        dice = Random(f"pausing {history.world.seed}")
        self.drawn = dice.random() < 0.25
        if self.drawn:
            history.world.after(int(history.horizon * dice.uniform(0.1, 0.6)), self._begin)
            for _ in range(dice.randint(1, 4)):
                history.world.after(int(history.horizon * dice.uniform(0.6, 1)), self._request)

    def known_to(self, process: Process) -> bool:
        """Whether this leader can see now that autoscaling is paused."""
        return self.on and self.history.deployment.reached_by(process)

    def decided(self, process: Process, decision: Decision) -> None:
        if decision.action in BY_LOAD and self.known_to(process):
            self._broken(decision.segments[0], f"{decision.action} though autoscaling is paused: {decision.reason}")

    def end(self) -> None:
        if self.on:
            self.on = False
            self.history.world.note("!", "", "autoscaling is paused no more")

    # ---- inside

    def _begin(self) -> None:
        self.on = not self.history.faults.over
        self.history.world.note("!", "", "autoscaling is paused")

    def _request(self) -> None:
        faults = self.history.faults
        requested = faults.request(MANUAL_ACTIONS) if not faults.over else None
        if requested is not None and faults.none:
            self.history.world.after(SOON, lambda: self._must_be_done(*requested))

    def _must_be_done(self, request: SegmentChange, leader: SimulatedLeader) -> None:
        """Checks that the request was carried out.

        A request may fail if the leader is killed first or rejects it; its sender then gets an error.
        """
        layout = self.history.store.truth(LAYOUT)
        if self.history.deleting.gone or not leader.process.alive or request in leader.machine.requests.rejected:
            return
        assert isinstance(layout, Layout)
        left = [name for name in request.segments if name in layout and not layout.segment(name).successors]
        if left:
            self._broken(left[0], f"{request.action} was requested manually, and is not done after {SOON // SECOND} s")

    def _broken(self, subject: str, what: str) -> None:
        self.history.checker.must([Violation(13, subject, what)])
