"""File lists in a history: brokers write them after a seal, and at times one is damaged, or lands when it is too late.

A broker that is killed between the seal and the write leaves the file list to the leader, and so does one that has not
seen the beginning of the chain.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from smq_storage.catalog import paths
from support.sim.engine.world import SECOND
from support.sim.filer.chunk_chain import folder
from support.sim.filer.file_lists import name_in_store

if TYPE_CHECKING:
    from support.sim.histories.protocol import History

SHARE = 0.5


class FileListScenario:
    """``drawn`` is true if this history has file lists. It uses a separate random generator."""

    def __init__(self, seed: int, possible: bool) -> None:
        self.dice = Random(f"manifests {seed}")
        self.drawn = possible and self.dice.random() < SHARE
        self.slow_writers = self.dice.random() < 0.5
        """Whether a broker writes a file list so slowly that it may be killed before the end."""
        self.old_brokers = self.dice.random() < 0.3
        """Whether brokers write no file lists, as before there were any."""

    def begin(self, history: History) -> None:
        """Plans the damages."""
        for _ in range(self.dice.choice([0, 0, 1, 2]) if self.drawn else 0):
            at = self.dice.randint(5 * SECOND, max(6 * SECOND, history.horizon))
            history.world.after(at, lambda: self._damage(history))
        for _ in range(self.dice.choice([0, 2, 4]) if self.drawn else 0):
            history.world.after(int(history.horizon * self.dice.uniform(0.6, 2.5)), lambda: self._land_late(history))

    def _damage(self, history: History) -> None:
        """Replaces a version 0 by bytes that cannot be decoded."""
        folder = name_in_store("")
        found = [path for path in history.store.paths(folder) if paths.file_list_version(path) == 0]
        if found:
            path = self.dice.choice(found)
            history.world.note("!", paths.file_list_segment(path) or "", f"{path} is damaged")
            history.store.overwrite(path, b"{")

    def _land_late(self, history: History) -> None:
        """The PUT of a broker that gave up reaches the store after the segment's files were deleted."""
        removed = history.checker.retained.rows
        gone = [name for name in removed if not history.store.paths(folder(name))]
        if gone:
            name = self.dice.choice(gone)
            history.world.note("!", name, "a file list that was given up lands")
            history.store.put_at_once(name_in_store(paths.file_list_name(name, 0)), b"{")
