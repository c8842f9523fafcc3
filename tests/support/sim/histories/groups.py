"""Histories of a group whose members keep what the client library keeps, and whose leaders are the operator's own code.

Now and then an administrator sets the group's positions or deletes the group. Members are paused for so long that the
group forgets them, leaders change and are paused. Segments are split, merged and rolled. Programs with an error commit
what they were not given. ``run(seed)`` as elsewhere.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from unittest.mock import patch

from smq_core.errors import SmqError
from smq_core.model.entities import Layout, Phase
from smq_operator.groups import segment_reach
from support.sim.checks.group_checker import GroupChecker
from support.sim.clients.group_member import SimulatedMember
from support.sim.clients.group_program import GroupProgram
from support.sim.engine.world import MS, SECOND, Process, Steps
from support.sim.filer.blocking_store import BlockingChain
from support.sim.filer.chunk_chain import LAYOUT
from support.sim.histories.elastic import shortened_waits
from support.sim.histories.leader_process import LeaderProcessHistory
from support.sim.histories.protocol import HistoryFailure
from support.sim.histories.protocol import run as run_history

# Longer than a member may be away, so that the group has no members.
LONG_PAUSE = 12 * SECOND
# The share of the administrator's changes that delete the group.
DELETED_SHARE = 0.4


class GroupHistory(LeaderProcessHistory):
    """``found`` counts what has happened, to show that histories have it."""

    checker: GroupChecker
    checker_kind = GroupChecker

    def __init__(self, seed: int) -> None:
        self.found: Counter[str] = Counter()
        super().__init__(seed)

    def draw(self, dice: Random) -> None:
        self.deleting.drawn = False
        super().draw(dice)
        self.groups = ["g"]
        while len(self.members) < 2:
            self.members.append(self.make_member("g", f"n{len(self.members)}"))
        self.horizon += LONG_PAUSE
        for _ in range(dice.randint(1, 3)):
            self.world.after(self.world.between(SECOND, self.horizon), self._pause_a_member)
            self.world.after(self.world.between(SECOND, self.horizon), lambda: self.faults.soon(0, self.faults.request))
        for _ in range(dice.randint(1, 3)):
            self.world.after(self.world.between(SECOND, self.horizon - LONG_PAUSE), self._change)
        if dice.random() < 0.5:
            self.world.after(
                self.world.between(SECOND, self.horizon), lambda: self.faults.soon(0, self.faults.pause_leader)
            )

    def run(self) -> None:
        with patch.object(segment_reach, "ChunkChain", BlockingChain):
            super().run()

    def restart_all(self) -> None:
        """A leader that serves a group from before a change by another leader has been replaced, so it ends."""
        for leader in self.leaders.values():
            served = leader.groups.loaded(self.topic.name, "g")
            if served is not None and served.epoch != self.checker.epochs.get("g"):
                leader.process.kill()
        super().restart_all()

    def make_member(self, group: str, name: str) -> SimulatedMember:
        return GroupProgram(self, group, name)

    def waiting(self) -> dict[str, str]:
        return super().waiting() or self.checker.uncommitted(self)

    def all_replicas_answer(self, segment: str) -> bool:
        """Whether every replica of an open segment runs, so that a leader can learn how far it can be read."""
        layout = self.store.truth(LAYOUT)
        if not isinstance(layout, Layout) or segment not in layout:
            return False
        here, running = layout.segment(segment), {b.incarnation for b in self.brokers.values() if b.process.alive}
        is_open = here.phase is Phase.OPEN and not here.successors
        return is_open and all(replica.incarnation in running for replica in here.replicas)

    def _pause_a_member(self) -> None:
        if not self.faults.over:
            self.faults.pause(self.world.random.choice(self.members).process, LONG_PAUSE)

    def _change(self) -> None:
        """Every member is away, and an administrator sets the group back or deletes it."""
        self.faults.pause_members(LONG_PAUSE)
        process = Process(self.world, "admin", self.world.unique("admin."))
        process.start(self._change_by(process, deletes=self.world.chance(DELETED_SHARE)))

    def _change_by(self, process: Process, *, deletes: bool) -> Steps:
        while not self.faults.over:
            leader = self.leader_for("admin")
            try:
                if deletes:
                    yield self.network.call(process, leader, "delete_group", "g")
                    self.found["a deletion"] += 1
                else:
                    positions = self._earlier_positions()
                    self.checker.will_set("g", positions)
                    yield self.network.call(process, leader, "set_positions", "g", positions)
                    self.found["a reset"] += 1
                return
            except SmqError:
                yield self.world.between(200 * MS, 800 * MS)

    def _earlier_positions(self) -> dict[str, int]:
        dice, committed = self.world.random, self.checker.committed.get("g", {})
        return {segment: dice.randint(0, offset) for segment, offset in committed.items()}


def run(seed: int) -> HistoryFailure | None:
    """Runs the history of a seed."""
    with shortened_waits():
        return run_history(seed, GroupHistory, f"PYTHONPATH=tests python -m support.sim.histories groups {seed}")
