"""Histories of a group whose members keep what the client library keeps, and whose positions are set now and then.

Members are paused for so long that the group forgets them, leaders change and are paused, segments are split, merged
and rolled. ``run(seed)`` as elsewhere.
"""

from __future__ import annotations

import sys
from collections import Counter
from random import Random

from smq_core.errors import SmqError
from support.sim.checks.group_checker import GroupChecker
from support.sim.clients.group_member import SimulatedMember
from support.sim.clients.group_program import GroupProgram
from support.sim.engine.world import MS, SECOND, Process, Steps
from support.sim.histories.protocol import History, HistoryFailure
from support.sim.histories.protocol import run as run_history

LONG_PAUSE = 12 * SECOND
"""Longer than a member may be away, so that the group has no members."""


class GroupHistory(History):
    """``found`` counts what has happened, to show that histories have it."""

    checker: GroupChecker
    checker_kind = GroupChecker

    def __init__(self, seed: int) -> None:
        self.found: Counter[str] = Counter()
        super().__init__(seed)

    def draw(self, dice: Random) -> None:
        super().draw(dice)
        self.groups = ["g"]
        while len(self.members) < 2:
            self.members.append(self.make_member("g", f"n{len(self.members)}"))
        self.horizon += LONG_PAUSE
        for _ in range(dice.randint(1, 3)):
            self.world.after(self.world.between(SECOND, self.horizon), self._pause_a_member)
            self.world.after(self.world.between(SECOND, self.horizon), lambda: self.faults.soon(0, self.faults.request))
        for _ in range(dice.randint(0, 2)):
            self.world.after(self.world.between(SECOND, self.horizon - LONG_PAUSE), self._reset)
        if dice.random() < 0.5:
            self.world.after(
                self.world.between(SECOND, self.horizon), lambda: self.faults.soon(0, self.faults.pause_leader)
            )

    def make_member(self, group: str, name: str) -> SimulatedMember:
        return GroupProgram(self, group, name)

    def waiting(self) -> dict[str, str]:
        return super().waiting() | self.checker.uncommitted(self)

    def _pause_a_member(self) -> None:
        if not self.faults.over:
            self.faults.pause(self.world.random.choice(self.members).process, LONG_PAUSE)

    def _reset(self) -> None:
        """Every member is away, and an administrator sets the group back."""
        self.faults.pause_members(LONG_PAUSE)
        process = Process(self.world, "admin", self.world.unique("admin."))
        process.start(self._reset_by(process))

    def _reset_by(self, process: Process) -> Steps:
        while not self.faults.over:
            positions = {
                segment: self.world.random.randint(0, offset)
                for segment, offset in self.checker.committed.get("g", {}).items()
            }
            leader = self.leader_for("admin")
            try:
                yield self.network.call(process, leader, "reset", "g", positions, timeout=2 * SECOND)
                self.found["a reset"] += 1
                return
            except SmqError:
                yield self.world.between(200 * MS, 800 * MS)


def run(seed: int) -> HistoryFailure | None:
    """Runs the history of a seed."""
    return run_history(seed, GroupHistory, "python -m support.sim.histories.groups")


if __name__ == "__main__":
    failure = run(int(sys.argv[1]))
    print(failure or "all invariants hold")
    sys.exit(failure is not None)
