"""Which files of a segment hold a range of offsets: from its file list, or by walking its chunk chain."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass

from smq_core.errors import CorruptDocument, DataLost
from smq_core.file_lists.file_list import FileEntry, FileList
from smq_core.model.entities import SealedSegment
from smq_storage.catalog import paths
from smq_storage.chunks.chain import ChunkChain, StoredChunk
from smq_storage.object_store.store import Store
from smq_storage.tables.file_lists import read_file_list
from smq_storage.tables.file_statistics import file_entry


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSegment:
    """Where a segment's files are. It can be sent to another process.

    ``end`` is None while the segment is not sealed. ``file_list`` is the file name that the index has, if it has one.
    """

    topic: str
    uid: str
    name: str
    end: int | None = None
    file_list: str = ""

    @classmethod
    def of(cls, topic: str, uid: str, sealed: SealedSegment) -> StoredSegment:
        """A sealed segment from its entry in the index."""
        return cls(topic=topic, uid=uid, name=sealed.name, end=sealed.end, file_list=sealed.file_list)


def files_between(
    store: Store, segment: StoredSegment, start: int, stop: int, key: str | None = None, ahead: Executor | None = None
) -> Iterator[FileEntry]:
    """The files with any of the offsets ``start .. stop - 1``, in order; those that exist if it is not sealed.

    One request if the segment has a file list, one for each chunk otherwise. ``ahead`` runs these at the same time.
    ``key`` names the key column, whose bounds the files of a chain have then. Raises DataLost if a chunk of a sealed
    segment is gone, CorruptChunk, CorruptDocument, StoreUnavailable.
    """
    file_list = load_file_list(store, segment)
    if file_list is not None:
        files = file_list.files_between(start, stop)
        store.expect(file.path for file in files)
        yield from files
    else:
        yield from _files_of_chain(store, segment, max(start, 0), stop, key, ahead)


def load_file_list(store: Store, segment: StoredSegment) -> FileList | None:
    """The segment's file list, or None if none is named or it is gone.

    Walk the chain if it is gone: a removed segment loses its files, too. Raises CorruptDocument, also for the file list
    of a segment that ends elsewhere, and StoreUnavailable.
    """
    if not segment.file_list:
        return None
    file_list = read_file_list(store, segment.topic, segment.uid, segment.file_list)
    if file_list is not None and segment.end not in (None, file_list.end):
        path = paths.file_list(segment.topic, segment.uid, segment.file_list)
        raise CorruptDocument(
            f"{path} ends at offset {file_list.end}, but the index says that its segment ends at {segment.end}",
            path=path,
        )
    return file_list


def lost_file(path: str, segment: str, start: int, stop: int) -> DataLost:
    """The error for a file that is gone, with the offsets that are missing."""
    return DataLost(
        f"the file {path} is gone, with the messages of {segment} from offset {start} on: "
        "retention removed the segment, a compaction replaced the file a while ago, or something else deleted it. Read "
        "the index again; a pin keeps the files of a long read",
        segment=segment,
        start=start,
        stop=stop,
    )


def _files_of_chain(
    store: Store, segment: StoredSegment, start: int, stop: int, key: str | None, ahead: Executor | None
) -> Iterator[FileEntry]:
    stop = stop if segment.end is None else min(stop, segment.end)
    if start >= stop:
        return
    chain = ChunkChain(store, segment.topic, segment.uid, segment.name)
    at = chain.find(start) if start else 0
    if at is not None:
        for chunk in chain.walk_stored(at) if ahead is None else _walk_ahead(chain, at, stop, ahead):
            at = chunk.info.end
            if not chunk.info.sealed:
                yield file_entry(chunk, key)
            if chunk.info.sealed or at >= stop:
                return
    if segment.end is not None:
        chain.confirm_missing(max(at or 0, start))
        # Without the files before it, the name of the file that has ``start`` is not known.
        path = chain.path(at) if at is not None else f"with offset {start} of {chain.path(0).rpartition('/')[0]}"
        raise lost_file(path, segment.name, max(at or 0, start), stop)


def _walk_ahead(chain: ChunkChain, at: int, stop: int, ahead: Executor) -> Iterator[StoredChunk]:
    """The chunks from ``at`` on. Those that a listing has are requested at once.

    A listing proves nothing: each chunk says where the next one begins, and one that the listing lacks is requested
    by that name.
    """
    firsts = (paths.first_offset(it.path) for it in chain.files())
    requested = {
        first: ahead.submit(chain.stored, first) for first in firsts if first is not None and at <= first < stop
    }
    while (chunk := requested[at].result() if at in requested else chain.stored(at)) is not None:
        yield chunk
        at = chunk.info.end
