"""A person pauses autoscaling in the middle of a history, and asks for changes by hand; both end with the writing.

While it is paused, load changes nothing, by whatever leader knows of it; failover, drains, rolls and what is asked for
by hand go on: in a history without faults each request is carried out soon, or given up with a reason, unless the
leader that was asked ends.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from smq_core.decide import Decision, Request
from smq_core.invariants import Violation
from smq_core.model import Layout
from support.sim.chain import LAYOUT
from support.sim.world import SECOND, Process

if TYPE_CHECKING:
    from support.sim.elastic import ElasticHistory
    from support.sim.leader import Leader

BY_HAND = ("split", "merge", "move", "roll")
BY_LOAD = ("split", "merge")
SOON = 10 * SECOND


class Pausing:
    """``drawn``: this history has a pause, by dice of its own. ``on``: it is paused now."""

    def __init__(self, history: ElasticHistory) -> None:
        self.history = history
        self.on = False
        dice = Random(f"pausing {history.world.seed}")
        self.drawn = dice.random() < 0.25
        if self.drawn:
            history.world.after(int(history.horizon * dice.uniform(0.1, 0.6)), self._begin)
            for _ in range(dice.randint(1, 4)):
                history.world.after(int(history.horizon * dice.uniform(0.6, 1)), self._ask)

    def known_to(self, process: Process) -> bool:
        """Whether this leader knows now that it is paused."""
        return self.on and self.history.deployment.reached_by(process)

    def decided(self, process: Process, decision: Decision) -> None:
        if decision.action in BY_LOAD and self.known_to(process):
            self._broken(decision.segments[0], f"{decision.action} though autoscaling is paused: {decision.reason}")

    def end(self) -> None:
        if self.on:
            self.on = False
            self.history.world.tell("!", "", "autoscaling is paused no more")

    # ---- inside

    def _begin(self) -> None:
        self.on = not self.history.faults.over
        self.history.world.tell("!", "", "autoscaling is paused")

    def _ask(self) -> None:
        faults = self.history.faults
        asked = faults.request(BY_HAND) if not faults.over else None
        if asked is not None and faults.none:
            self.history.world.after(SOON, lambda: self._must_be_done(*asked))

    def _must_be_done(self, request: Request, leader: Leader) -> None:
        """Whoever asked hears an error when the leader ends before it is written down, or something came before it."""
        layout = self.history.store.truth(LAYOUT)
        if self.history.deleting.gone or not leader.process.alive or request in leader.machine.given_up:
            return
        assert isinstance(layout, Layout)
        left = [name for name in request.segments if name in layout and not layout.segment(name).successors]
        if left:
            self._broken(left[0], f"{request.action} was asked for by hand, and is not done after {SOON // SECOND} s")

    def _broken(self, subject: str, what: str) -> None:
        self.history.checker.must([Violation(13, subject, what)])
