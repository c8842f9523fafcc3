"""The files of a segment: from its file list, or from its chunk chain, whose chunks are requested in parallel."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor

from smq_core.file_lists.file_list import FileEntry
from smq_storage.catalog import paths
from smq_storage.chunks.chain import ChunkChain, StoredChunk
from smq_storage.object_store.store import Store
from smq_storage.tables.file_statistics import file_entry
from smq_storage.tables.segment_files import StoredSegment, load_file_list, lost_file


def stored_files(
    store: Store, segment: StoredSegment, start: int, stop: int, key: str | None, executor: Executor
) -> list[FileEntry]:
    """The files with any of the offsets ``start .. stop - 1``, in order; those that exist if it is not sealed.

    ``key`` names the key column. Raises DataLost if a chunk of a sealed segment is gone, CorruptChunk, CorruptDocument
    and StoreUnavailable.
    """
    file_list = load_file_list(store, segment)
    if file_list is not None:
        return list(file_list.files_between(start, stop))
    found, at = [], start
    for chunk in _chain(ChunkChain(store, segment.topic, segment.uid, segment.name), start, stop, executor):
        if not chunk.info.sealed:
            found.append(file_entry(chunk, key))
            at = chunk.info.end
    if segment.end is not None and at < min(stop, segment.end):
        path = paths.chunk(segment.topic, segment.uid, segment.name, at)
        raise lost_file(path, segment.name, at, min(stop, segment.end))
    return found


def _chain(chain: ChunkChain, start: int, stop: int, executor: Executor) -> Iterator[StoredChunk]:
    """The chunks with these offsets, in the order of the chain.

    A listing says which names there may be, so that they are requested at once. It proves nothing: each chunk says
    where the next one begins, and one that the listing lacks is requested by that name.
    """
    listed = [first for o in chain.files() if (first := paths.first_offset(o.path)) is not None and first < stop]
    begin = max((first for first in listed if first <= start), default=0)
    requested = {first: executor.submit(chain.stored, first) for first in listed if first >= begin}
    at = begin
    while at < stop:
        chunk = requested[at].result() if at in requested else chain.stored(at)
        if chunk is None or chunk.info.sealed:
            return
        if chunk.info.end > start:
            yield chunk
        at = chunk.info.end
