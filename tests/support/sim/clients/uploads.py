"""Uploads in the simulation: what producers write to the store themselves and publish by reference, and its collection.

An upload's age is that of the store. Some uploads are backdated, because a history is much shorter than their grace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from smq_core.errors import SmqError, StoreStateUnknown
from smq_core.invariants import Message, Violation
from smq_core.model.entities import Phase
from smq_core.model.reference import Reference
from smq_storage.catalog.sealed_index import IndexPage
from support.sim.engine.world import MS, SECOND, Process, Steps
from support.sim.filer.chunk_chain import INDEX, LAYOUT, VALUES, SimulatedChain
from support.sim.filer.object_store import SimulatedStore

if TYPE_CHECKING:
    from support.sim.clients.messages import SimulatedSubBatch
    from support.sim.histories.protocol import History

FOLDER = "upload/"
GRACE = 40 * SECOND
MAX_AGE = GRACE // 2
REFERENCE_BYTES = 50
# No producer refers to rows that it did not upload.
OTHER_ROWS = "the upload has other rows"


class SimulatedUpload(NamedTuple):
    """Where the rows of a sub-batch are, from row ``first_row`` of the upload on."""

    name: str
    etag: str
    first_row: int


class UploadedFile(NamedTuple):
    """The object in the store: messages in the order of their partitions, and when it was uploaded."""

    messages: tuple[Message, ...]
    uploaded_at: int


def reference_of(sub_batch: SimulatedSubBatch) -> Reference | None:
    upload = sub_batch.upload
    if upload is None:
        return None
    times, partitions = [m.sent_at for m in sub_batch.messages], sub_batch.partitions
    return Reference(
        upload=upload.name,
        etag=upload.etag,
        first_row=upload.first_row,
        rows=len(sub_batch.messages),
        bytes=REFERENCE_BYTES,
        partition_min=min(partitions),
        partition_max=max(partitions),
        timestamp_min=min(times),
        timestamp_max=max(times),
    )


def rejection_of(store: SimulatedStore, process: Process, reference: Reference) -> Steps:
    """Why a primary rejects the reference, or None. Raises StoreUnavailable."""
    found = yield store.get(process, FOLDER + reference.upload)
    if found is None:
        return "there is no such upload"
    file, etag = found
    if etag != reference.etag:
        return "the upload has another etag"
    if is_too_old(file, store.world.now):
        return "the upload is too old"
    rows = file.messages[reference.first_row : reference.stop_row]
    partitions = [m.partition for m in rows]
    if len(rows) != reference.rows or (min(partitions), max(partitions)) != (
        reference.partition_min,
        reference.partition_max,
    ):
        return OTHER_ROWS
    return None


def is_too_old(file: UploadedFile, now: int) -> bool:
    return now - file.uploaded_at > MAX_AGE


def read_rows(history: History, process: Process, reference: Reference, segment: str) -> Steps:
    """The rows of a reference, or None if the store does not answer or answers with an old state."""
    path = FOLDER + reference.upload
    try:
        found = yield history.store.get(process, path)
    except SmqError:
        return None
    if found is None:
        if history.store.truth(path) is None:
            what = f"{reference.upload} is gone, and the log refers to it"
            history.checker.must([Violation(12, segment, what)])
        return None
    file, etag = found
    history.checker.must([Violation(4, segment, f"{path} was replaced")] if etag != reference.etag else [])
    return file.messages[reference.first_row : reference.stop_row]


class ReferenceScenario:
    """Who publishes by reference, and what is wrong with it. The draws are independent of all others of the seed.

    ``has_collector``: a separate process collects uploads, in place of the leaders.
    """

    def __init__(self, history: History, *, has_collector: bool = True) -> None:
        self.history = history
        self.dice = Random(f"references of {history.world.seed}")
        self.share = self.dice.choice([0.2, 0.5, 1.0])
        self.rejected: set[Message] = set()
        self.published = 0
        self.collected = 0
        self.kept_uploads: Callable[[Process], Steps] = _none
        """Returns the paths of uploads that must stay although no chunk refers to them."""
        self._collector = Process(history.world, "collector", "collector")
        if has_collector:
            self._collector.start(self._collect())

    def uploads_next(self) -> bool:
        return self.dice.random() < self.share

    def upload(self, process: Process, sub_batch: SimulatedSubBatch) -> Steps:
        """Uploads the rows, and returns them in the order of their partitions with the place of the upload."""
        world, store = self.history.world, self.history.store
        messages = tuple(sorted(sub_batch.messages, key=lambda m: m.partition))
        young, old = self.dice.randint(1, 18) * SECOND, self.dice.randint(25, 60) * SECOND
        age = self.dice.choice([0, 0, 0, 0, young, old, MAX_AGE - self.dice.randint(50, 3000) * MS])
        while True:
            name = world.unique("file")
            try:
                etag = yield store.put(process, FOLDER + name, UploadedFile(messages, world.now - age), None)
            except (StoreStateUnknown, SmqError):
                yield 100 * MS  # under another name, since a late PUT may still be applied
            else:
                break
        if self.dice.random() < 0.05:
            etag = "another"
        self.published += 1
        return sub_batch._replace(messages=messages, upload=SimulatedUpload(name, etag, 0))

    def waiting(self) -> dict[str, str]:
        """The uploads that are old, that no chunk refers to, and that are still there."""
        store, now = self.history.store, self.history.world.now
        kept = referenced_by_chunks(store)
        return {
            path: "it is not collected, and no chunk refers to it"
            for path in store.paths(FOLDER)
            if path not in kept and now - store.truth(path).uploaded_at > GRACE
        }

    def reject(self, messages: Iterable[Message]) -> None:
        self.rejected.update(messages)

    # ---- garbage collection

    def _collect(self) -> Steps:
        world = self.history.world
        while True:
            yield world.between(200 * MS, 600 * MS)
            try:
                yield from collect(self)
            except SmqError:
                continue


def collect(scenario: ReferenceScenario) -> Steps:
    """One pass over all old uploads, with the rules of ``smq_operator.cleanup.unreferenced_uploads``."""
    history, process = scenario.history, scenario._collector
    world, store = history.world, history.store
    old = []
    listed = [*(yield store.list(process, FOLDER)), *(yield store.list(process, VALUES))]
    for path in listed:
        found = yield store.get(process, path)
        if found is not None and world.now - found[0].uploaded_at > GRACE:
            old.append(path)
    also_kept = yield from scenario.kept_uploads(process)
    layout = yield store.get(process, LAYOUT)
    index = yield store.get(process, INDEX)
    if not old or layout is None or any(s.phase is Phase.SEALING for s in layout[0].segments):
        return
    page = index[0] if index is not None else IndexPage()
    names = {it.name for it in (*layout[0].segments, *page.entries, *page.removed_segments)}
    kept = yield from referenced(scenario, sorted(names))
    for path in old:
        if path not in kept and path not in also_kept:
            world.note(process.name, "", f"{path} is deleted")
            yield store.delete(process, path)
            scenario.collected += 1


def referenced_by_chunks(store: SimulatedStore) -> set[str]:
    """The paths of the uploads that any chunk in the store refers to, also one of a segment that is being deleted."""
    infos = (store.truth(path).info for path in store.paths("seg/"))
    return {FOLDER + info.reference.upload for info in infos if info.reference is not None}


def _none(process: Process) -> Steps:
    return ()
    yield


def referenced(scenario: ReferenceScenario, segments: Iterable[str]) -> Steps:
    """The paths of the uploads and large values that the chains of these segments refer to."""
    kept = set()
    for name in segments:
        chain, at = SimulatedChain(scenario.history.store, scenario._collector, name), 0
        while (info := (yield from chain.info(at))) is not None and not info.sealed:
            if info.reference is not None:
                kept.add(FOLDER + info.reference.upload)
            kept.update(VALUES + name for name in info.large_values)
            at = info.end
    return kept
