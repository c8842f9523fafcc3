"""A segment's chunks in the simulated store, as its readers see them."""

from __future__ import annotations

from dataclasses import dataclass

from smq_core.file_lists.file_list import FileEntry
from smq_core.model.chunk_info import ChunkInfo
from smq_core.replica.log_entries import Entry
from smq_storage.catalog import paths
from support.sim.engine.world import Process, Steps
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

    def read(self, first: int) -> Steps:
        """The chunk at this offset, or None."""
        found = yield self.store.get(self.process, path(self.segment, first))
        return found[0] if found is not None else None

    def info(self, first: int) -> Steps:
        stored = yield from self.read(first)
        return stored.info if stored is not None else None


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
