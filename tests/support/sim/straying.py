"""Files that nothing refers to, and the operator's own collector of them, which runs beside retention.

What it deletes is checked as everything that is deleted is: no segment may be listed, living, or not removed
(``retained``). In the end no stray is left; a violation has the number 14 or 12.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from random import Random
from typing import TYPE_CHECKING

from smq_core.errors import SmqError
from smq_core.model import ChunkInfo
from smq_operator import collect_strays as strays
from support.sim.chain import Stored, folder, path
from support.sim.world import SECOND, Steps, World

if TYPE_CHECKING:
    from support.sim.elastic import ElasticHistory
    from support.sim.elastic_leader import ElasticLeader

SHARE = 0.5
STAY = 4 * SECOND
LOOK_EVERY = 3 * SECOND


class Straying:
    """``drawn``: strays come about in this history, which has retention, and are collected."""

    def __init__(self, history: ElasticHistory) -> None:
        self.history = history
        dice = Random(f"strays {history.world.seed}")
        self.drawn = history.limits.on and dice.random() < SHARE
        self.written = 0
        for _ in range(dice.randint(1, 4) if self.drawn else 0):
            history.world.after(int(history.horizon * dice.uniform(0.3, 2.5)), self._write)

    def _write(self) -> None:
        """A PUT that everybody has given up lands in a segment that is no more."""
        names = [name for name in self.history.checker.retained.rows if not self._files(name)]
        if names and not self.history.deleting.gone:
            name, at = names[-1], 7 + self.written
            self.written += 1
            self.history.world.tell("!", name, f"a chunk that was given up lands at {at}")
            self.history.store.put_at_once(path(name, at), Stored(ChunkInfo(name, at, 1, "late", f"late {at}")))

    def _files(self, name: str) -> list[str]:
        return self.history.store.paths(folder(name))

    def waiting(self) -> dict[str, str]:
        """The strays that are still there."""
        return {name: "strays of it are left" for name in self.history.checker.retained.rows if self._files(name)}


def keep(leader: ElasticLeader) -> Steps:
    """Looks for them again and again, for as long as this leader lives."""
    world = leader.world
    while True:
        yield world.between(LOOK_EVERY * 3 // 4, LOOK_EVERY * 5 // 4)
        try:
            found = yield leader.retainer.do(strays.collect_strays, leader.machine.topic, STAY)
        except SmqError as error:
            world.tell(leader.process.name, "", f"looking for strays is put off: {error.message}")
            continue
        for name, count in found.deleted.items():
            world.tell(leader.process.name, name, f"{count} strays of it are deleted")


class Clock:
    """In the place of ``datetime``: the time is the simulation's."""

    def __init__(self, world: World) -> None:
        self._world = world

    def now(self, zone: object) -> datetime:
        return datetime.fromtimestamp(0, zone) + timedelta(microseconds=self._world.now)  # type: ignore[arg-type]
