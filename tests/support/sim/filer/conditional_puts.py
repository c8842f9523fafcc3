"""The one rule for unclear PUTs: after any error the object is read back.

See docs/protocol/filer.md, "Conditional writes".

The same rule as ``smq_storage.object_store.conditional_writes``, on the simulated store. ``put_conditionally`` is a
task: ``yield from`` it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from smq_core.errors import StoreStateUnknown, StoreUnavailable
from support.sim.engine.world import MS, SECOND, Process, Steps
from support.sim.filer.object_store import ConditionFailed, SimulatedStore


@dataclass(frozen=True, slots=True)
class PutApplied:
    etag: str


@dataclass(frozen=True, slots=True)
class PutConflict:
    value: Any


def put_conditionally(
    store: SimulatedStore,
    caller: Process,
    path: str,
    value: Any,
    etag: str | None,
    is_mine: Callable[[Any], bool],
    timeout: int = 5 * SECOND,
) -> Steps:
    """Returns PutApplied or PutConflict. Raises StoreStateUnknown after the timeout."""
    world = store.world
    deadline = world.now + timeout
    pause = 50 * MS
    while True:
        try:
            return PutApplied((yield store.put(caller, path, value, etag)))
        except (ConditionFailed, StoreUnavailable):
            pass
        try:
            found = yield store.get(caller, path)
        except StoreUnavailable:
            pass
        else:
            if found is not None and is_mine(found[0]):
                return PutApplied(found[1])
            if found is not None and found[1] != etag:
                return PutConflict(found[0])
        if world.now + pause > deadline:
            raise StoreStateUnknown(f"state unknown: {path} was not written so far, but may still appear")
        yield pause
        pause = min(pause * 2, SECOND)
