"""Histories by reference with atomic publishes of two apps: ``run(seed)`` as elsewhere.

Publishers and the leaders' processes that complete publishes die between any two steps. An app gets a second owner
while the first still runs, and segments are split more often than elsewhere.
"""

from __future__ import annotations

import sys
from functools import partial
from random import Random

from support.sim.checks.end_state import final_log
from support.sim.checks.publish_checker import PublishChecker
from support.sim.clients.atomic_publishes import SimulatedCompleter, SimulatedPublisher, kept_uploads
from support.sim.engine.world import MS
from support.sim.histories import protocol
from support.sim.histories.protocol import HistoryFailure
from support.sim.histories.references import ReferenceHistory

ADDRESSES = ("completer-0", "completer-1")
APPS = ("app-a", "app-b")


class AtomicHistory(ReferenceHistory):
    publishes: PublishChecker

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.dice = Random(f"atomic publishes of {seed}")
        self.publishes = PublishChecker(self)
        assert self.references is not None
        self.references.kept_uploads = partial(kept_uploads, history=self)
        self.completers = {address: SimulatedCompleter(self, address) for address in ADDRESSES}
        self.publishers: list[SimulatedPublisher] = []
        for app in APPS[: self.dice.choice([1, 2])]:
            self._start_publisher(app, 0, self.dice.randint(2, 8))
        for _ in range(self.dice.randint(0, 10)):
            self._schedule(self.dice.choice([self._kill_publisher, self._second_owner, self._kill_completer]))
        for _ in range(self.dice.randint(1, 6)):
            self._schedule(lambda: self.faults.request(["split", "split", "merge"]))

    def restart_all(self) -> None:
        super().restart_all()
        for address in ADDRESSES:
            self._start_completer(address)
        for publisher in list(self.publishers):
            if (
                not publisher.process.alive
                and not publisher.done
                and self._newest_publisher(publisher.app) is publisher
            ):
                self._start_publisher(publisher.app, publisher.version, publisher.stop)

    def waiting(self) -> dict[str, str]:
        busy = {p.name: f"is at version {p.version}" for p in self.publishers if p.process.alive and not p.done}
        return super().waiting() | self.publishes.waiting | busy

    def finish(self) -> None:
        super().finish()
        self.publishes.check(final_log(self))

    def _schedule(self, action: object) -> None:
        assert callable(action)
        at = self.dice.randint(0, max(1, self.horizon - 500 * MS))
        self.world.after(at, lambda: None if self.faults.over else action())

    def _start_publisher(self, app: str, start: int, stop: int) -> None:
        self.publishers.append(SimulatedPublisher(self, app, start, stop, Random(self.dice.random())))

    def _newest_publisher(self, app: str) -> SimulatedPublisher:
        return [p for p in self.publishers if p.app == app][-1]

    def _kill_publisher(self) -> None:
        """The program is started again, and begins with the version that it was at, or with one before it."""
        old = self._newest_publisher(self.dice.choice(self.publishers).app)
        if old.process.alive and not old.done:
            self.world.note("!", "", f"{old.name} is killed at version {old.version}")
            old.process.kill()
            start = max(0, old.version - self.dice.choice([0, 0, 1]))
            self._after(self.dice.randint(0, 2000), lambda: self._start_publisher(old.app, start, old.stop))

    def _second_owner(self) -> None:
        old = self._newest_publisher(self.dice.choice(self.publishers).app)
        if not old.done:
            self.world.note("!", "", f"another publisher takes {old.app} over from {old.name}")
            self._start_publisher(old.app, old.version, old.stop)

    def _kill_completer(self) -> None:
        address = self.dice.choice(ADDRESSES)
        self.completers[address].process.kill()
        self._after(self.dice.randint(0, 3000), lambda: self._start_completer(address))

    def _start_completer(self, address: str) -> None:
        if not self.completers[address].process.alive:
            self.completers[address] = SimulatedCompleter(self, address)

    def _after(self, milliseconds: int, action: object) -> None:
        assert callable(action)
        self.world.after(milliseconds * MS, lambda: None if self.faults.over else action())


def run(seed: int) -> HistoryFailure | None:
    """Runs the history of a seed."""
    return protocol.run(seed, AtomicHistory, f"python -m support.sim.histories.atomic {seed}")


if __name__ == "__main__":
    failure = run(int(sys.argv[1]))
    print(failure or "all invariants hold")
    sys.exit(failure is not None)
