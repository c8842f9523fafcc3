"""Large values in the simulation: producers write them as separate objects, and the log has only their names.

A batch of one message may have one. Its object has an age as an upload has, and is collected like one; that of a
removed segment is deleted with the segment's files.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import TYPE_CHECKING

from smq_core.errors import SmqError, StoreStateUnknown
from smq_core.invariants import Violation
from smq_core.replica.log_entries import Entry
from support.sim.clients.uploads import GRACE, MAX_AGE, UploadedFile, is_too_old
from support.sim.engine.world import MS, SECOND, Process, Steps
from support.sim.filer.chunk_chain import VALUES, segments_that_name
from support.sim.filer.object_store import SimulatedStore

if TYPE_CHECKING:
    from support.sim.clients.messages import SimulatedSubBatch
    from support.sim.histories.protocol import History


class LargeValueScenario:
    """Who sends large values. The draws are independent of all others of the seed."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.dice = Random(f"large values of {history.world.seed}")
        self.share = self.dice.choice([0.0, 0.5, 1.0])
        self.sent = self.read = 0

    def takes(self, sub_batch: SimulatedSubBatch) -> bool:
        """Whether the value of this batch's message is uploaded."""
        return len(sub_batch.messages) == 1 and self.dice.random() < self.share

    def upload(self, process: Process, sub_batch: SimulatedSubBatch) -> Steps:
        """Uploads the value, and returns the batch with the object's name. Some objects are backdated."""
        world, store = self.history.world, self.history.store
        old, nearly = self.dice.randint(25, 60) * SECOND, MAX_AGE - self.dice.randint(50, 3000) * MS
        age = self.dice.choice([0, 0, 0, 0, old, nearly])
        while True:
            name = f"{world.unique('large')}.value"
            try:
                yield store.put(process, VALUES + name, UploadedFile(sub_batch.messages, world.now - age), None)
            except (StoreStateUnknown, SmqError):
                yield 100 * MS  # under another name, since a late PUT may still be applied
            else:
                self.sent += 1
                return sub_batch._replace(large_value=name)

    def waiting(self) -> dict[str, str]:
        """The objects that are old, that no chunk names, and that are still there."""
        store, now = self.history.store, self.history.world.now
        return {
            path: "it is not collected, and no chunk names it"
            for path in store.paths(VALUES)
            if now - store.truth(path).uploaded_at > GRACE and not segments_that_name(store, path)
        }


def rejection_of(store: SimulatedStore, process: Process, names: Iterable[str]) -> Steps:
    """Why a primary rejects a batch that names these objects, or None. Raises StoreUnavailable."""
    for name in names:
        found = yield store.get(process, VALUES + name)
        if found is None:
            return "there is no such object"
        if is_too_old(found[0], store.world.now):
            return "the object is too old"
    return None


def can_read(history: History, process: Process, entry: Entry, segment: str) -> Steps:
    """Whether a reader gets the values of this entry now. That of a segment that is still there is never missing."""
    for name in entry.batch.large_values:
        path = VALUES + name
        try:
            found = yield history.store.get(process, path)
        except SmqError:
            return False
        if found is None:
            if history.store.truth(path) is None and segment not in history.checker.retained.rows:
                history.checker.must([Violation(12, segment, f"{name} is gone, and the log names it")])
            return False
        if found[0].messages != entry.batch.payload.messages:  # type: ignore[attr-defined]
            history.checker.must([Violation(4, segment, f"{name} is another message's value")])
        if history.large_values is not None:
            history.large_values.read += 1
    return True
