"""A segment's chunks in the simulated store, and the driver of ``smq_core.sealing.chain_sealer``."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from smq_core.file_lists.file_list import FileEntry
from smq_core.model.chunk_info import ChunkInfo, SealOutcome
from smq_core.replica.log_entries import ChunkWrite, Entry
from smq_core.sealing.chain_sealer import ReadChunk, WriteChunk, WriteSeal
from smq_storage.catalog import paths
from support.sim.engine.world import SECOND, Process, Steps
from support.sim.filer import conditional_puts
from support.sim.filer.object_store import SimulatedStore

TOPIC, UID = "default/t", "uid"
LAYOUT = "layout"
INDEX = "index"
PUBLISHES = "publishes"
# The folder of large values.
VALUES = "value/"


def folder(segment: str) -> str:
    return f"seg/{segment}/"


def path(segment: str, first: int) -> str:
    return f"seg/{segment}/{first:06d}"


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """The object of one chunk."""

    info: ChunkInfo
    entries: tuple[Entry, ...] = ()

    @staticmethod
    def of(info: ChunkInfo, entries: tuple[Entry, ...]) -> StoredChunk:
        """A file has either rows or a reference."""
        entries = entries[:1] if info.reference is not None else entries
        return StoredChunk(info, tuple(it for it in entries if it.batch.reference is info.reference))


@dataclass(slots=True)
class SimulatedChain:
    """One segment's chain as one process sees it. All methods are tasks; any may raise StoreUnavailable."""

    store: SimulatedStore
    process: Process
    segment: str
    timeout: int = 5 * SECOND

    def read(self, first: int) -> Steps:
        """The chunk at this offset, or None."""
        found = yield self.store.get(self.process, path(self.segment, first))
        return found[0] if found is not None else None

    def info(self, first: int) -> Steps:
        stored = yield from self.read(first)
        return stored.info if stored is not None else None

    def write(self, chunk: ChunkWrite) -> Steps:
        """True if it exists with this nonce, False if another object has the name."""
        info = chunk.info(self.segment, *self._signature())
        return (yield from self._create(StoredChunk.of(info, chunk.entries)))

    def write_seal(self, step: WriteSeal) -> Steps:
        return (yield from self._create(StoredChunk(step.info(*self._signature()))))

    def find_seal(self, start: int = 0) -> Steps:
        """The outcome that the seal chunk fixed, or None while there is none."""
        at = start
        while True:
            info = yield from self.info(at)
            if info is None:
                return None
            if info.sealed:
                return info.outcome
            at = info.end

    def drive(self, sealer: Generator[Any, Any, SealOutcome]) -> Steps:
        """Executes the operations of a sealer until it ends."""
        answer: Any = None
        while True:
            try:
                step = sealer.send(answer)
            except StopIteration as end:
                return end.value
            match step:
                case ReadChunk(first):
                    answer = yield from self.info(first)
                case WriteChunk(chunk):
                    answer = yield from self.write(chunk)
                case WriteSeal():
                    answer = yield from self.write_seal(step)

    def _signature(self) -> tuple[str, str]:
        return self.process.name, self.store.world.unique("n")

    def _create(self, stored: StoredChunk) -> Steps:
        info = stored.info
        result = yield from conditional_puts.put_conditionally(
            self.store,
            self.process,
            path(self.segment, info.first),
            stored,
            None,
            lambda it: (it.info.writer, it.info.nonce) == (info.writer, info.nonce),
            self.timeout,
        )
        mine = isinstance(result, conditional_puts.PutApplied)
        what = f"seal chunk at {info.first}" if info.sealed else f"chunk {info.first}..{info.end}"
        self.store.world.note(self.process.name, self.segment, f"{what}: {'written' if mine else 'taken by another'}")
        return mine


def file_of(info: ChunkInfo) -> FileEntry:
    """The entry of a chunk in a file list. Its nonce stands for the etag."""
    reference = info.reference
    if reference is not None:
        path = f"{paths.uploads_folder(UID)}/{reference.upload}"
        return FileEntry(
            path=path,
            first=info.first,
            rows=info.rows,
            bytes=reference.bytes,
            etag=reference.etag,
            first_row=reference.first_row,
        )
    path = paths.chunk(TOPIC, UID, info.segment, info.first)
    return FileEntry(
        path=path, first=info.first, rows=info.rows, bytes=info.rows, etag=info.nonce, large_values=info.large_values
    )


def segments_that_name(store: SimulatedStore, path: str) -> set[str]:
    """The segments whose chunks name the large value at this path."""
    infos = (store.truth(it).info for it in store.paths("seg/"))
    return {info.segment for info in infos if path.removeprefix(VALUES) in info.large_values}


def true_chain(store: SimulatedStore, segment: str) -> list[StoredChunk]:
    """The true chain, for the checker."""
    found: list[StoredChunk] = []
    at = 0
    while (stored := store.truth(path(segment, at))) is not None:
        found.append(stored)
        if stored.info.sealed:
            break
        at = stored.info.end
    return found
