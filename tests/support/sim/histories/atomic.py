"""Histories by reference with atomic publishes of two apps: ``run(seed)`` as elsewhere.

Publishers and the leaders' processes that complete publishes die between any two steps. A leader is also paused in the
middle of rolling forward, so that another one takes over and it goes on later. An app gets a second owner while the
first still runs, and segments are split more often than elsewhere. In many histories retention removes sealed segments.
The service of the leaders and the publisher of the clients are the product's own code.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from random import Random
from types import SimpleNamespace
from unittest.mock import patch

from smq.producing import atomic_publisher
from smq_operator.api import publishes
from smq_operator.cleanup import retention
from smq_operator.publishing import kept_files, tried_segments
from support.sim.checks.end_state import final_log
from support.sim.checks.publish_checker import PublishChecker
from support.sim.clients.atomic_publishes import SimulatedPublisher
from support.sim.engine.virtual_asyncio import VirtualLoop
from support.sim.engine.world import MS, SECOND, Process
from support.sim.filer.blocking_store import BlockingChain
from support.sim.histories import protocol
from support.sim.histories.protocol import HistoryFailure
from support.sim.histories.references import ReferenceHistory
from support.sim.leaders.publish_completer import STEPS, SimulatedCompleter, check_upload, kept_uploads
from support.sim.leaders.sealed_removal import SealedSegmentRemoval

ADDRESSES = ("completer-0", "completer-1")
APPS = ("app-a", "app-b")
# A file that was checked before a commit is still there when a paused leader writes it.
LONGEST_PAUSE = 8 * SECOND
# The share of apps whose programs count up from the last version.
COUNTED_SHARE = 0.4
STEP_WEIGHTS = (4, 2, 2)
# The share of histories in which retention removes sealed segments.
REMOVAL_SHARE = 0.6


class AtomicHistory(ReferenceHistory):
    publishes: PublishChecker

    def __init__(self, seed: int) -> None:
        self.loops: list[VirtualLoop] = []
        """Their threads end with the history."""
        super().__init__(seed)
        self.dice = Random(f"atomic publishes of {seed}")
        self.publishes = PublishChecker(self)
        assert self.references is not None
        self.references.kept_uploads = partial(kept_uploads, history=self)
        self.completers = {address: SimulatedCompleter(self, address) for address in ADDRESSES}
        self.publishers: list[SimulatedPublisher] = []
        self.counted_apps = {
            app for app in APPS if Random(f"last versions of {app} in {seed}").random() < COUNTED_SHARE
        }
        for app in APPS[: self.dice.choice([1, 2])]:
            self._start_publisher(app, 0, self.dice.randint(2, 8))
        for _ in range(self.dice.randint(0, 10)):
            self._schedule(self.dice.choice([self._kill_publisher, self._second_owner, self._kill_completer]))
        self._draw_pauses_and_removals(Random(f"pauses of completers, and removals of {seed}"))
        for _ in range(self.dice.randint(1, 6)):
            self._schedule(lambda: self.faults.request(["split", "split", "merge"]))

    def run(self) -> None:
        """Raises InvariantViolated, or an unexpected error of a state machine."""
        with (
            patch.object(retention, "ChunkChain", BlockingChain),
            patch.object(tried_segments, "ChunkChain", BlockingChain),
            patch.object(publishes, "check_file", check_upload),
            patch.object(atomic_publisher, "time", SimpleNamespace(monotonic=lambda: self.world.now / SECOND)),
        ):
            try:
                super().run()
            finally:
                for loop in self.loops:
                    loop.abandon()

    def processes(self) -> Iterable[Process]:
        yield from super().processes()
        yield from (it.process for it in (*self.completers.values(), *self.publishers))

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

    def _draw_pauses_and_removals(self, dice: Random) -> None:
        """The draws are independent of all others of the seed."""
        for _ in range(dice.choice([0, 4, 10])):
            step, address = dice.choices(STEPS, STEP_WEIGHTS)[0], dice.choice(ADDRESSES)
            at = dice.randint(0, self.horizon // 2)  # the later half has few publishes
            self.world.after(at, partial(self._arm, address, step))
        if dice.random() < REMOVAL_SHARE:
            removal = SealedSegmentRemoval(self, dice.choice([0, 0, 20]), kept_files.has_unfinished_publish)
            self.loops.append(removal.loop)

    def _arm(self, address: str, step: str) -> None:
        self.completers[address].pause_before = step

    def pause_completer(self, completer: SimulatedCompleter, step: str) -> None:
        """Pauses a leader that is about to do this step."""
        if not self.faults.over:
            self.publishes.paused[step] += 1
            self.faults.pause(completer.process, LONGEST_PAUSE)

    def completed(self) -> None:
        """A leader has completed a publish. If the other one is paused, segments with rows of it are replaced."""
        if not self.faults.over and any(it.process.paused for it in self.completers.values()):
            for milliseconds in (0, 100, 700, 1500):
                self._after(milliseconds, lambda: self.faults.request(["roll", "split"]))

    def _after(self, milliseconds: int, action: object) -> None:
        assert callable(action)
        self.world.after(milliseconds * MS, lambda: None if self.faults.over else action())


def run(seed: int) -> HistoryFailure | None:
    """Runs the history of a seed."""
    return protocol.run(seed, AtomicHistory, f"python -m support.sim.histories atomic {seed}")
