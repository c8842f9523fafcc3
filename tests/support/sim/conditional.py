"""The one rule for unclear PUTs: after any error the object is read back (docs/protocol.md, "Conditional writes").

The same rule as ``smq_storage.conditional``, over the simulated store. ``settle`` is a task: ``yield from`` it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from smq_core.errors import StoreUnavailable
from support.sim.store import ConditionFailed, Store
from support.sim.world import MS, SECOND, Process, Steps


@dataclass(frozen=True, slots=True)
class Written:
    etag: str


@dataclass(frozen=True, slots=True)
class Taken:
    value: Any


def settle(
    store: Store,
    caller: Process,
    path: str,
    value: Any,
    etag: str | None,
    is_mine: Callable[[Any], bool],
    patience: int = 5 * SECOND,
) -> Steps:
    """Returns Written or Taken. Raises StoreUnavailable, state unknown, when the patience ends."""
    world = store.world
    deadline = world.now + patience
    pause = 50 * MS
    while True:
        try:
            return Written((yield store.put(caller, path, value, etag)))
        except (ConditionFailed, StoreUnavailable):
            pass
        try:
            found = yield store.get(caller, path)
        except StoreUnavailable:
            pass
        else:
            if found is not None and is_mine(found[0]):
                return Written(found[1])
            if found is not None and found[1] != etag:
                return Taken(found[0])
        if world.now + pause > deadline:
            raise StoreUnavailable(f"state unknown: {path} was not written so far, but may still appear")
        yield pause
        pause = min(pause * 2, SECOND)
