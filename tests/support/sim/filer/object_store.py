"""The object store: create-only and compare-and-swap PUTs, with every fault that a store may have.

A PUT may be applied while its answer is lost, be applied after its timeout, or fail without effect, also with a false
"already exists". So may a DELETE. A GET may be stale, and a LIST always is. The store never lets two writers create one
name, and never applies a PUT whose condition does not hold.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from smq_core.errors import SmqError, StoreStateUnknown, StoreUnavailable
from support.sim.engine.network import SimulatedNetwork
from support.sim.engine.world import MS, SECOND, Future, Process, World

HOST = "filer"
TIME_LIMIT = 1 * SECOND
# The etag of a request without a condition.
ANY_VERSION = "*"


class ConditionFailed(SmqError):
    """The store answers that the PUT's condition does not hold: the object exists, or has another etag."""


@dataclass(slots=True)
class StoredObject:
    """An object: its versions as (written at, value, etag), the newest last. A deleted one: None, None."""

    versions: list[tuple[int, Any, str | None]]


@dataclass(slots=True)
class SimulatedStoreFaults:
    """Probabilities per request. With ``away`` the store does not answer. ``stale`` is the age of a GET's answer."""

    lost_answer: float = 0.0
    late: float = 0.0
    refused: float = 0.0
    false_conflict: float = 0.0
    stale_get: float = 0.0
    stale: int = 2 * SECOND
    failed_get: float = 0.0
    away: bool = False


class SimulatedStore:
    def __init__(self, world: World, network: SimulatedNetwork) -> None:
        self.world = world
        self.network = network
        self.faults = SimulatedStoreFaults()
        self.slowdown = 1
        self.things: dict[str, StoredObject] = {}
        self.watchers: list[Callable[[str, Any], None]] = []

    # ---- the true content, for the checker

    def truth(self, path: str) -> Any:
        thing = self.things.get(path)
        return thing.versions[-1][1] if thing is not None else None

    def paths(self, prefix: str) -> list[str]:
        return [path for path in self.things if path.startswith(prefix) and self.truth(path) is not None]

    def put_at_once(self, path: str, value: Any) -> None:
        """Writes an object before the history begins."""
        self._apply(path, value, None)

    def overwrite(self, path: str, value: Any) -> None:
        """Replaces an object, as nobody does who follows the rules."""
        self._apply(path, value, ANY_VERSION)

    def apply_at_once(self, path: str, value: Any, etag: str | None) -> str | None:
        """Creates, replaces or deletes (value None) without time and faults. None if the condition does not hold."""
        return self._apply(path, value, etag)

    # ---- requests

    def put(self, caller: Process, path: str, value: Any, etag: str | None) -> Future:
        """Creates (etag None) or replaces. Returns the new etag. Raises ConditionFailed, StoreStateUnknown."""
        world, faults = self.world, self.faults
        answer = Future()
        self._limit(answer, StoreStateUnknown)
        if faults.away or (caller.host, HOST) in self.network.cuts:
            if world.chance(0.1):
                world.after(world.between(TIME_LIMIT, 6 * SECOND), lambda: self._apply(path, value, etag) and None)
            return answer
        dice = world.random.random()
        arrives = world.between(1 * MS, 8 * MS) * self.slowdown
        answers = arrives + world.between(500, 3 * MS) * self.slowdown
        dice -= faults.refused
        if dice < 0:
            self._reply(caller, answer, answers, StoreStateUnknown("the store failed"))
            return answer
        dice -= faults.false_conflict
        if dice < 0:
            self._reply(caller, answer, answers, ConditionFailed("in conflict with another request"))
            return answer
        dice -= faults.late
        if dice < 0:
            world.after(world.between(TIME_LIMIT, 8 * SECOND), lambda: self._apply(path, value, etag) and None)
            return answer
        dice -= faults.lost_answer
        if dice < 0:
            world.after(arrives, lambda: self._apply(path, value, etag) and None)
            if world.chance(0.5):
                self._reply(caller, answer, answers, StoreStateUnknown("the connection broke"))
            return answer

        def arrive() -> None:
            new = self._apply(path, value, etag)
            result = new if new is not None else ConditionFailed("the condition does not hold")
            self._reply(caller, answer, answers - arrives, result)

        world.after(arrives, arrive)
        return answer

    def delete(self, caller: Process, path: str) -> Future:
        """Deletes the object unconditionally, if it exists. Fails as ``put`` does."""
        return self.put(caller, path, None, ANY_VERSION)

    def get(self, caller: Process, path: str) -> Future:
        """Returns (value, etag), or None if there is no object."""
        world, faults = self.world, self.faults
        answer = Future()
        self._limit(answer)
        if faults.away or (caller.host, HOST) in self.network.cuts:
            return answer
        if world.chance(faults.failed_get):
            self._reply(caller, answer, 3 * MS, StoreUnavailable("the store failed"))
            return answer
        lag = world.between(0, faults.stale) if world.chance(faults.stale_get) else 0

        def arrive() -> None:
            self._reply(caller, answer, world.between(500, 2 * MS), self._as_of(path, world.now - lag))

        world.after(world.between(500, 3 * MS) * self.slowdown, arrive)
        return answer

    def list(self, caller: Process, prefix: str) -> Future:
        """Returns the paths as they were some time ago: a hint."""
        world = self.world
        answer = Future()
        self._limit(answer)
        if self.faults.away or (caller.host, HOST) in self.network.cuts:
            return answer
        as_of = world.now - world.between(0, self.faults.stale)
        below = [path for path in self.things if path.startswith(prefix)]
        found = sorted(path for path in below if self._as_of(path, as_of) is not None)
        self._reply(caller, answer, 4 * MS, found)
        return answer

    # ---- inside

    def _limit(self, answer: Future, failure: type[StoreUnavailable] = StoreUnavailable) -> None:
        self.world.after(TIME_LIMIT, lambda: answer.fail(failure("no answer in time")))

    def _reply(self, caller: Process, answer: Future, delay: int, result: Any) -> None:
        if (HOST, caller.host) in self.network.cuts or self.faults.away:
            return
        if isinstance(result, SmqError):
            self.world.after(delay, lambda: answer.fail(result))
        else:
            self.world.after(delay, lambda: answer.set(result))

    def _apply(self, path: str, value: Any, etag: str | None) -> str | None:
        thing = self.things.get(path)
        if etag != ANY_VERSION and (thing.versions[-1][2] if thing is not None else None) != etag:
            return None
        if value is None:
            return self._delete(path)
        new = self.world.unique("e")
        if thing is None:
            self.things[path] = StoredObject([(self.world.now, value, new)])
        else:
            thing.versions.append((self.world.now, value, new))
        for watcher in self.watchers:
            watcher(path, value)
        return new

    def _delete(self, path: str) -> str:
        if self.truth(path) is not None:
            self.things[path].versions.append((self.world.now, None, None))
            for watcher in self.watchers:
                watcher(path, None)
        return "gone"

    def _as_of(self, path: str, time: int) -> tuple[Any, str] | None:
        thing = self.things.get(path)
        if thing is None:
            return None
        for at, value, etag in reversed(thing.versions):
            if at <= time:
                return (value, etag) if etag is not None else None
        return None
