"""One history of the Lease: three candidates, and an API server that goes away, answers slowly and loses answers.

Each candidate uses core's ``LeaseCandidate`` as ``smq_operator.kube.election.lease.LeaseElector`` does, with the same
time limits. ``run(seed)`` returns None, or a text that says what went wrong. Three guarantees are checked:

* No outage of the API server, of any length, displaces a leader that runs. Outages are at least ``APART`` apart,
  because a candidate may need that long to notice that the API server answers again.
* If a holder is gone and the API server answers, another one leads after the Lease's duration and ``SOON``.
* Two lead at once only until the displaced one could read the Lease again: for ``BOTH`` at most.
"""

from __future__ import annotations

from typing import Any

from smq_core.errors import Conflict, SmqError, Unavailable
from smq_core.leader_election import LeaseAction, LeaseCandidate, LeaseRecord
from support.sim.engine.world import MS, SECOND, Future, Process, Steps, World

CALL_WITHIN, AFTER_FAILURE, CHECK_EVERY = 5 * SECOND, SECOND, 200 * MS
SLOWEST = SECOND
APART = 9 * SECOND
SOON = 6 * SECOND
BOTH = 2 * SECOND + AFTER_FAILURE + 2 * SLOWEST + 4 * CHECK_EVERY
RECOVERY_TIME = 40 * SECOND


class LeaseServer:
    """The API server. ``away`` is None while it answers; otherwise "silent" or "refusing"."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.away: str | None = None
        self.up_since = 0
        self.slow = 0.0
        self.lease: LeaseRecord | None = None

    def request(self, write: str | None, before: LeaseRecord | None) -> Future:
        """Reads the Lease, or writes this holder if the Lease has not changed. Fails with Conflict or Unavailable."""
        world, answer = self.world, Future()
        world.after(CALL_WITHIN, lambda: answer.fail(Unavailable("no answer in time")))
        if self.away == "refusing":
            world.after(2 * MS, lambda: answer.fail(Unavailable("connection refused")))
        if self.away:
            return answer

        def pause() -> int:
            return world.between(50 * MS, SLOWEST // 2) if world.chance(self.slow) else world.between(MS, 10 * MS)

        def arrive() -> None:
            if self.away:
                return
            refused = write is not None and self.lease != before
            if write is not None and not refused:
                self.put(write)
            found = self.lease
            world.after(pause(), lambda: self._answer(answer, Conflict("it has changed") if refused else found))

        world.after(pause(), arrive)
        return answer

    def put(self, holder: str) -> None:
        self.lease = LeaseRecord(self.world.unique("v"), holder, 10 * SECOND)

    def _answer(self, answer: Future, result: Any) -> None:
        if self.away:
            return
        if isinstance(result, SmqError):
            answer.fail(result)
        else:
            answer.set(result)


class LeaseProcess:
    """One operator process."""

    def __init__(self, history: LeaseHistory, number: int) -> None:
        self.world, self.server = history.world, history.server
        self.process = Process(self.world, f"host-{number}", self.world.unique(f"c{number}."))
        self.candidate = LeaseCandidate(self.process.name)
        self.ahead = self.world.between(0, 1000 * SECOND)
        self.up_since = self.world.now
        self.process.start(self._run())

    @property
    def stands_by(self) -> bool:
        return self.process.alive and not self.process.paused

    def resume(self) -> None:
        self.up_since = self.world.now
        self.process.resume()

    @property
    def leads(self) -> bool:
        return self.stands_by and self.candidate.leads

    def _run(self) -> Steps:
        while not self.candidate.lost:
            try:
                yield from self._step()
            except Conflict:
                self.candidate.refused()
            except SmqError:
                yield AFTER_FAILURE
            yield CHECK_EVERY

    def _step(self) -> Steps:
        began = self.world.now + self.ahead
        next_action = self.candidate.next_action(began)
        if next_action is LeaseAction.READ:
            self.candidate.observed((yield self.server.request(None, None)), began)
        elif next_action in (LeaseAction.TAKE, LeaseAction.RENEW):
            written = yield self.server.request(self.candidate.identity, self.candidate.lease)
            self.candidate.written(written, began)


class LeasePromiseBroken(Exception):
    """A guarantee does not hold."""


class LeaseHistory:
    """``stops`` is true if candidates are killed and paused. Otherwise the first leader leads for ever."""

    def __init__(self, seed: int) -> None:
        self.world = world = World(seed)
        dice = world.random
        self.server = LeaseServer(world)
        self.server.slow = dice.choice([0.0, 0.1, 0.5])
        self.stops = dice.random() < 0.5
        self.runners = [LeaseProcess(self, i) for i in range(3)]
        self._first: LeaseProcess | None = None
        self._nobody_since: int | None = None
        self._both_since: int | None = None
        self._outages(dice.randint(0, 4))
        for _ in range(dice.randint(0, 3)):
            world.after(world.between(0, self.end), self._edit)
        for _ in range(dice.randint(1, 5) if self.stops else 0):
            world.after(world.between(5 * SECOND, self.end), dice.choice([self._kill, self._pause]))

    def run(self) -> None:
        """Raises LeasePromiseBroken."""
        while self.world.now < self.end + RECOVERY_TIME:
            self.world.run_until(self.world.now + 100 * MS)
            self._check()

    def _check(self) -> None:
        world, leading = self.world, [r for r in self.runners if r.leads]
        if self._first is None and leading:
            self._first = leading[0]
        if self._first and not self.stops and leading != [self._first]:
            names = [r.process.name for r in leading]
            raise LeasePromiseBroken(
                f"at {world.now / 1e6:.1f} s {names} lead; {self._first.process.name} led, and was never stopped"
            )
        for at, runner in enumerate(self.runners):
            if runner.candidate.lost:
                self._ends(at)
        here = [r.up_since for r in self.runners if r.stands_by]
        self._nobody_since = self._since(self._nobody_since, not leading and bool(here))
        if self._nobody_since is not None:
            self._nobody_since = max(self._nobody_since, min(here))
        self._both_since = self._since(self._both_since, len(leading) > 1)
        if self._nobody_since is not None and world.now - self._nobody_since > 10 * SECOND + SOON:
            raise LeasePromiseBroken(f"nobody has led since {self._nobody_since / 1e6:.1f} s")
        if self._both_since is not None and world.now - self._both_since > BOTH:
            raise LeasePromiseBroken(f"two have led since {self._both_since / 1e6:.1f} s")

    def _since(self, since: int | None, holds: bool) -> int | None:
        """Since when it holds the Lease while the API server can be reached. Before that nothing can be decided."""
        if not holds or self.server.away:
            return None
        return max(since if since is not None else self.world.now, self.server.up_since + CALL_WITHIN + AFTER_FAILURE)

    # ---- faults

    def _outages(self, count: int) -> None:
        world, at = self.world, self.world.between(0, 20 * SECOND)
        for _ in range(count):
            lasts = world.random.choice([world.between(100 * MS, 5 * SECOND), world.between(SECOND, 90 * SECOND)])
            how = world.random.choice(["silent", "refusing"])
            world.after(at, lambda how=how: self._away(how))
            world.after(at + lasts, lambda: self._away(None))
            at += lasts + world.between(APART, 30 * SECOND)
        self.end = max(at, 60 * SECOND)

    def _away(self, how: str | None) -> None:
        self.server.away, self.server.up_since = how, self.world.now

    def _edit(self) -> None:
        """Another client changes an annotation, so that the holder's next write conflicts."""
        holder = self.server.lease.holder if self.server.lease is not None else None
        if holder is not None and any(r.leads and r.candidate.identity == holder for r in self.runners):
            self.server.put(holder)

    def _kill(self) -> None:
        """Kills a candidate, which starts again a little later with a new identity."""
        self._ends(self._victim())

    def _ends(self, at: int) -> None:
        if self.runners[at].process.alive:
            self.runners[at].process.kill()
            self.world.after(self.world.between(0, 20 * SECOND), lambda: self._start(at))

    def _start(self, at: int) -> None:
        self.runners[at] = LeaseProcess(self, at)

    def _pause(self) -> None:
        runner = self.runners[self._victim()]
        runner.process.pause()
        self.world.after(self.world.between(SECOND, 30 * SECOND), runner.resume)

    def _victim(self) -> int:
        leading = [i for i, r in enumerate(self.runners) if r.leads]
        return leading[0] if leading and self.world.chance(0.7) else self.world.random.randrange(3)


def run(seed: int) -> str | None:
    """Runs the history of a seed."""
    try:
        LeaseHistory(seed).run()
    except LeasePromiseBroken as broken:
        return f"seed {seed}: {broken}"
    return None
