"""Orphaned files, and the operator's own garbage collector for them, which runs beside retention.

The retention checker (``retained``) checks every deletion: the segment must be removed, and neither in the index nor in
the layout. In the end no orphaned file may be left. Violations have the numbers 14 and 12.
"""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random
from typing import TYPE_CHECKING

from smq_core.errors import SmqError
from smq_core.model.chunk_info import ChunkInfo
from smq_operator.cleanup import orphaned_files as orphaned_files
from support.sim.engine.world import SECOND, Steps
from support.sim.filer.chunk_chain import StoredChunk, folder, path

if TYPE_CHECKING:
    from support.sim.histories.elastic import ElasticHistory
    from support.sim.leaders.elastic_leader import ElasticLeader

SHARE = 0.5
RETENTION_TIME = 4 * SECOND
CHECK_EVERY = 3 * SECOND


class OrphanedFilesScenario:
    """``drawn`` is true if this history has retention and orphaned files, which are collected."""

    def __init__(self, history: ElasticHistory) -> None:
        self.history = history
        dice = Random(f"strays {history.world.seed}")
        self.drawn = history.limits.on and dice.random() < SHARE
        self.written = 0
        for _ in range(dice.randint(1, 4) if self.drawn else 0):
            history.world.after(int(history.horizon * dice.uniform(0.3, 2.5)), self._write)

    def _write(self) -> None:
        """A PUT that its writer gave up reaches the store after the segment was removed."""
        names = [name for name in self.history.checker.retained.rows if not self._files(name)]
        if names and not self.history.deleting.gone:
            name, at = names[-1], 7 + self.written
            self.written += 1
            self.history.world.note("!", name, f"a chunk that was given up lands at {at}")
            self.history.store.put_at_once(
                path(name, at),
                StoredChunk(ChunkInfo(segment=name, first=at, rows=1, writer="late", nonce=f"late {at}")),
            )

    def _files(self, name: str) -> list[str]:
        return self.history.store.paths(folder(name))

    def waiting(self) -> dict[str, str]:
        """The segments that still have orphaned files."""
        return {
            name: "orphaned files of it are left" for name in self.history.checker.retained.rows if self._files(name)
        }


def keep(leader: ElasticLeader) -> Steps:
    """Collects them periodically while this leader runs."""
    world = leader.world
    while True:
        yield world.between(CHECK_EVERY * 3 // 4, CHECK_EVERY * 5 // 4)
        try:
            before = (yield from leader.retainer.clocks()).earliest - RETENTION_TIME
            found = yield leader.retainer.do(
                orphaned_files.collect_orphaned_files,
                leader.machine.topic,
                datetime.fromtimestamp(before / SECOND, UTC),
            )
        except SmqError as error:
            world.note(leader.process.name, "", f"the search for orphaned files is deferred: {error.message}")
            continue
        for name, count in found.deleted.items():
            world.note(leader.process.name, name, f"{count} orphaned files of it are deleted")
