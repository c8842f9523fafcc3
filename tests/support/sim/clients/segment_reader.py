"""How a simulated reader reads a segment: the tail from any replica, older rows from the chain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smq.consuming.reader_losses import loss_for_reader
from smq_core.errors import SmqError, StoreUnavailable
from smq_core.invariants import Row
from smq_core.model.chunk_info import SealOutcome
from smq_core.model.entities import Layout
from smq_core.model.loss import Loss
from smq_core.model.reference import Reference
from smq_core.reading.segment_dag import ReadProgress, build_nodes, index_is_stale, is_removed
from smq_storage.catalog.sealed_index import IndexPage
from support.sim.clients import large_values, uploads
from support.sim.clients.messages import rows
from support.sim.engine.world import SECOND, Process, Steps
from support.sim.filer.chunk_chain import INDEX, LAYOUT, SimulatedChain

if TYPE_CHECKING:
    from support.sim.histories.protocol import History


class SegmentReader:
    """Reads for one process. Its state is a ``ReadProgress``."""

    def __init__(self, history: History, process: Process, reader: ReadProgress) -> None:
        self.history = history
        self.world = history.world
        self.process = process
        self.reader = reader
        self.layout: Layout | None = None
        self.reported: dict[str, Loss] = {}
        """What was reported to this reader as lost with all replicas."""
        self._chunk_at: dict[str, int] = {}
        self._resumed = list(reader.positions)
        """The segments with positions of an earlier start that are in neither layout nor index yet."""

    def refresh(self) -> Steps:
        """Reads the DAG: the layout first, then the index, which gets a sealed segment before the layout drops it."""
        store = self.history.store
        try:
            found = yield store.get(self.process, LAYOUT)
            if found is None:
                return
            page = yield store.get(self.process, INDEX)
        except StoreUnavailable:
            return
        index = page[0] if page is not None else IndexPage()
        if index_is_stale(found[0], index.entries, index.removed):
            return
        if self.layout is None or found[0].version >= self.layout.version:
            self.layout = found[0]
            nodes, ends = build_nodes(index.entries, self.layout), {it.name: it.end for it in index.removed_segments}
            for name in [name for name in self.reader.nodes if name not in nodes]:
                self.reader.removed(name, ends.get(name))
            self.reader.update(nodes)
            known = [name for name in self._resumed if name in nodes or is_removed(name, index.removed)]
            for name in known:
                self._resumed.remove(name)
                if name not in nodes:
                    self.reader.removed(name, ends.get(name))
            for entry in index.entries:
                if entry.lost is not None and self.reader.is_read(entry.name):
                    self._report(entry.name, loss_for_reader(0, entry.lost))

    def _report(self, segment: str, loss: Loss | None) -> None:
        if loss is None:
            return
        before = self.reported.get(segment, loss)
        self.reported[segment] = Loss(
            min(before.start, loss.start), max(before.stop, loss.stop), before.at_least or loss.at_least
        )

    def read(self, segment: str) -> Steps:
        """The rows that can be read now, from the position on, in order."""
        position = self.reader.positions.get(segment, 0)
        replicas = ()
        if self.layout is not None and segment in self.layout:
            replicas = self.layout.segment(segment).replicas
        if replicas and self.reader.nodes[segment].end is None:
            replica = self.world.random.choice(replicas)
            call = self.history.network.call(
                self.process, replica.address, "tail", segment, replica.incarnation, position, timeout=SECOND
            )
            try:
                match (yield call):
                    case ("rows", entries):
                        return (yield from self._rows_of_entries(segment, entries, position))
                    case ("sealed", SealOutcome() as outcome):
                        self._ended(segment, outcome.end, outcome.lost)
            except SmqError:
                pass
        return (yield from self._from_chain(segment, position))

    def _from_chain(self, segment: str, position: int) -> Steps:
        chain = SimulatedChain(self.history.store, self.process, segment)
        at = self._chunk_at.get(segment, 0)
        if at > position:  # this process was ahead of its last commit
            at = 0
        while True:
            try:
                stored = yield from chain.read(at)
            except StoreUnavailable:
                return []
            if stored is None:
                return []
            if stored.info.sealed:
                self._ended(segment, stored.info.first, stored.info.lost)
                return []
            if stored.info.end > position:
                info = stored.info
                if info.reference is not None:
                    return (yield from self._referenced(segment, info.first, info.reference, position))
                return (yield from self._rows_of_entries(segment, stored.entries, position))
            at = self._chunk_at[segment] = stored.info.end

    def _ended(self, segment: str, end: int, lost: Loss | None) -> None:
        self.history.checker.seal_reported(segment, end)
        self._report(segment, loss_for_reader(self.reader.positions.get(segment, 0), lost))
        self.reader.ended(segment, end)

    def _rows_of_entries(self, segment: str, entries: Any, position: int) -> Steps:
        """As far as the uploads and large values can be read, without a gap."""
        found: list[Row] = []
        for entry in entries:
            if entry.end > position and not (
                yield from large_values.can_read(self.history, self.process, entry, segment)
            ):
                break
            if entry.batch.reference is None:
                found += self._rows(segment, [entry], position)
                continue
            read = yield from self._referenced(segment, entry.first, entry.batch.reference, position)
            if not read:
                break
            found += read
        return found

    def _referenced(self, segment: str, first: int, reference: Reference, position: int) -> Steps:
        messages = yield from uploads.read_rows(self.history, self.process, reference, segment)
        return [Row(segment, n, it) for n, it in enumerate(messages or (), first) if n >= position]

    def _rows(self, segment: str, entries: Any, position: int) -> list[Row]:
        return [Row(segment, offset, message) for offset, message in rows(entries) if offset >= position]


def advance(reader: ReadProgress, found: list[Row]) -> None:
    if found:
        reader.advance(found[-1].segment, found[-1].offset + 1)
