"""Fails the n-th task start, thread start, document read, callback or call to a broker of a leader in memory."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from google.protobuf.message import Message

from smq_core.model.entities import Replica
from smq_operator.runtime.listeners import Listeners
from smq_storage.object_store.results import StoredObject
from smq_storage.object_store.store import Store
from support.in_memory.brokers import FakeFleet
from support.in_memory.leader import FakePlatform, LeaderInMemory

# ``late thread start``: the executor runs the call after all, as Python's does when a thread becomes free. ``damaged
# document``: the object that is read then stays damaged.
KINDS = ("task start", "thread start", "late thread start", "document read", "damaged document", "callback", "call")


class FaultInjected(RuntimeError):
    """What fails on purpose."""


class Fault:
    """Counts the opportunities of one kind, and fails number ``at`` (from 1; 0: none)."""

    def __init__(self, kind: str, at: int) -> None:
        assert kind in KINDS
        self.kind, self.at = kind, at
        self.count = 0
        self.damaged: str = ""
        """The path of the damaged document."""

    @property
    def happened(self) -> bool:
        return 0 < self.at <= self.count

    def hits(self, *kinds: str) -> bool:
        """Counts if the fault is of one of these kinds; True at its number."""
        if self.kind not in kinds:
            return False
        self.count += 1
        return self.count == self.at


class FaultyStore:
    """A store of which documents cannot be read."""

    def __init__(self, store: Store, fault: Fault) -> None:
        self._store, self._fault = store, fault

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def get(self, path: str) -> StoredObject:
        found = self._store.get(path)
        if self._fault.hits("document read"):
            return StoredObject(memoryview(b'{"damaged'), found.etag)
        if self._fault.hits("damaged document"):
            self._fault.damaged = path
        if self._fault.damaged == path:
            return StoredObject(memoryview(b'{"damaged'), found.etag)
        return found


class FaultyFleet(FakeFleet):
    """Brokers of which a call fails in a way that nobody expects."""

    fault: Fault

    async def call(self, replica: Replica, action: str, request: Message, *, timeout: float, **haste: bool) -> bytes:
        if self.fault.hits("call"):
            raise FaultInjected("call")
        return await super().call(replica, action, request, timeout=timeout, **haste)


def leader_with(fault: Fault, platform: FakePlatform, fleet: FaultyFleet, store: Store) -> LeaderInMemory:
    """A leader with this fault."""
    fleet.fault = fault
    faulty: Any = FaultyStore(store, fault)
    leader = LeaderInMemory(platform, fleet, faulty)
    tasks: Any = leader.tasks
    tasks.spawn = partial(_spawn, fault, tasks.spawn)
    pool: Any = leader.parts.store
    object.__setattr__(pool, "run", partial(_run, fault, pool.run))
    for listeners in (leader.parts.events._on_change, leader.parts.events._on_deleted):
        _make_faulty(listeners, fault)
    return leader


def _spawn(fault: Fault, spawn: Callable[..., Any], work: Coroutine[Any, Any, None], *args: Any) -> Any:
    if fault.hits("task start"):
        work.close()
        raise FaultInjected("cannot start a task")
    return spawn(work, *args)


async def _run(fault: Fault, run: Callable[..., Any], call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if fault.hits("thread start", "late thread start"):
        if fault.kind == "late thread start":
            await run(call, *args, **kwargs)
        raise FaultInjected("can't start new thread")
    return await run(call, *args, **kwargs)


def _make_faulty(listeners: Listeners[Any], fault: Fault) -> None:
    def faulty(listener: Callable[..., None], *args: Any) -> None:
        if fault.hits("callback"):
            raise FaultInjected("callback")
        listener(*args)

    listeners._listeners = [partial(faulty, listener) for listener in listeners._listeners]
