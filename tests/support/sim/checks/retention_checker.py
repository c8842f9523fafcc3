"""What must hold of retention; a violation has the number 14.

14. What leaves the index is sealed, oldest first, and read by every group that has a say. By age it leaves when it is
    truly as old, whatever a leader's clock says. It never comes back. Its files go after it, and no others do. In the
    end what is listed is there, and what is not listed is gone. Every reader has read all that is left, each segment
    from its beginning.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from smq_core import invariants as inv
from smq_core.invariants import Row, Violation
from smq_core.model.entities import Layout, RemovedSegment, SealedSegment, TopicSpec
from smq_core.model.interval_set import contains, union
from smq_core.reconcile.retention import GroupProgress, plan_retention
from smq_storage.catalog.sealed_index import IndexPage
from support.sim.clients.messages import rows
from support.sim.engine.world import SECOND
from support.sim.filer.chunk_chain import LAYOUT, folder, path, true_chain

if TYPE_CHECKING:
    from support.sim.checks.protocol_checker import ProtocolChecker
    from support.sim.clients.reader import SimulatedReader

# A group that has just begun is not seen in a listing yet.
LISTED_AFTER = 2 * SECOND
LATE = 15 * SECOND


class RetentionChecker:
    """``rows`` are those of the segments that were removed: the log continues with them."""

    def __init__(self, checker: ProtocolChecker) -> None:
        self.checker = checker
        self.rows: dict[str, list[Row]] = {}
        self.born: dict[str, int] = {}
        self.decided: dict[int, int] = {}
        """When, in true time, a leader began to decide, by its own clock."""
        self._page = IndexPage()
        self._emptied: dict[str, int] = {}

    # ---- as it happens

    def index_put(self, page: IndexPage, spec: TopicSpec | None) -> None:
        before, self._page = self._page, page
        listed = {entry.name for entry in page.entries}
        if union(page.removed, before.removed) != page.removed:
            self._broken("index", f"{before.removed} were removed, now only {page.removed}")
        for entry in page.entries:
            if contains(page.removed, entry.number):
                self._broken(entry.name, "it was removed and is listed")
        noted = {it.name: it for it in page.removed_segments}
        for entry in before.entries:
            if entry.name not in listed:
                assert spec is not None
                self._removed(entry, noted.get(entry.name), listed, spec)
                known = (row.offset for row in self.rows[entry.name])
                if list(known) != list(range(entry.end)):
                    self._broken(entry.name, f"it ends at {entry.end}, and was not there when it was removed")

    def _removed(
        self, entry: SealedSegment, note: RemovedSegment | None, listed: Iterable[str], spec: TopicSpec
    ) -> None:
        checker, name = self.checker, entry.name
        if note is None or not note.files:
            return self._broken(name, "it leaves the index, and the record of files to delete lacks it")
        layout = checker.store.truth(LAYOUT)
        if name not in checker.seals or (isinstance(layout, Layout) and name in layout):
            self._broken(name, "it is removed while the layout has it")
        left = [p for p in entry.predecessors if p in listed]
        if left:
            self._broken(name, f"it is removed before {left}")
        self.rows[name] = log_of(checker, name)
        if spec.retention_bytes is None and spec.retention_age is not None:
            age = checker.world.now - checker.store.things[path(name, entry.end)].versions[-1][0]
            if age <= spec.retention_age:
                self._broken(name, f"it is removed {age / SECOND:.3f} s after its seal, which is too early")
        if not spec.retention_keeps_unread or not entry.end:
            return
        decided = self.decided.get(note.removed_at, note.removed_at)
        for group, positions in checker.committed.items():
            if self.born[group] < decided - LISTED_AFTER and not checker.record_read(positions, name):
                self._broken(name, f"it is removed, and group {group} has still to read it: {positions}")

    def deleted(self, path: str) -> None:
        name = path.split("/")[1]
        self._emptied[name] = self.checker.world.now
        if not path.startswith(folder(name)):
            self._broken(path, "it is no segment's, and was deleted")
        if name not in self.rows:
            self._broken(name, f"{path} is deleted and the segment was not removed")
        if any(entry.name == name for entry in self._page.entries):
            self._broken(name, f"{path} is deleted and the segment is listed")

    # ---- at the end

    def waiting(self, spec: TopicSpec, now: int) -> dict[str, str]:
        """What is still to be removed or deleted, long after its time. Empty when retention has finished."""
        waiting = {it.name: "its files are still to be deleted" for it in self._page.removed_segments if it.files}
        groups = [GroupProgress(name, positions) for name, positions in self.checker.committed.items()]
        layout = self.checker.store.truth(LAYOUT)
        sealed = [entry for entry in self._page.entries if entry.name not in layout]
        for removal in plan_retention(spec, sealed, groups, now - LATE).removals:
            waiting[removal.segment.name] = f"it is still listed: {removal.because}"
        return waiting

    def check(self, readers: Iterable[SimulatedReader]) -> None:
        checker, store = self.checker, self.checker.store
        layout = store.truth(LAYOUT)
        ends: dict[str, int | None] = {entry.name: entry.end for entry in self._page.entries}
        ends |= {segment.name: None for segment in layout.segments if segment.name not in ends}
        chains = {name: [it.info for it in true_chain(store, name)] for name in ends}
        checker.must(inv.nothing_referenced_is_missing(ends, chains))
        pending_deletion = {it.name for it in self._page.removed_segments if it.files}
        files = {name: self._files(name) for name in checker.everyone if name not in pending_deletion}
        checker.must(inv.nothing_is_left_over(ends, files))
        for reader in readers:
            self._gapless(reader)

    def _files(self, name: str) -> int:
        """Without files that were written after the deletion of the segment, because another pass deletes those."""
        things, since = self.checker.store.things, self._emptied.get(name)
        paths = self.checker.store.paths(folder(name))
        return sum(since is None or things[path].versions[-1][0] < since for path in paths)

    def _gapless(self, reader: SimulatedReader) -> None:
        next_: dict[str, int] = {}
        for row in reader.rows:
            if row.offset != next_.get(row.segment, 0):
                self._broken(row.segment, f"{reader.name} read {row.offset} and not {next_.get(row.segment, 0)}")
            next_[row.segment] = row.offset + 1

    def _broken(self, subject: str, what: str) -> None:
        self.checker.must([Violation(14, subject, what)])


def log_of(checker: ProtocolChecker, name: str) -> list[Row]:
    """Every row that the segment's chain has now, or had when the segment was removed."""
    kept = checker.retained.rows.get(name)
    if kept is not None:
        return kept
    chain = checker.chain_of(name)
    return [Row(name, offset, message) for stored in chain for offset, message in rows(stored.entries)]
