"""Deletes the chunks of a sealed segment whose rows are in merged files that the segment's file list has.

The caller decides when (``superseded_chunks.next_step``). Everything can be interrupted anywhere and repeated, and two
processes may do it at once:

1. Every merged file in the file list is there, with the size and the etag that the file list says.
2. The chunks with its rows are read, by a walk. None is deleted if one of them refers to an upload, or to a large value
   that the file list does not name.
3. One compare-and-swap puts the compacted chunk in the place of the first of them. From then on a walk passes over the
   others.
4. The others are deleted, the first one first. A walk may have begun at one of them by an old listing. If it misses the
   next one, it finds that its own beginning is gone, too, and begins anew at offset 0. Those that are left after an
   interruption are found by a listing.

A former merged file, which a later one replaces, is known by the compacted chunk that names it, and deleted with it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from smq_core.errors import CorruptChunk
from smq_core.file_lists.file_list import FileEntry, FileList
from smq_core.file_lists.superseded_rules import compacted_chunk, superseded_offsets, why_kept
from smq_core.model.chunk_info import ChunkInfo
from smq_storage.catalog import paths
from smq_storage.chunks.chain import ChunkChain, StoredChunk
from smq_storage.chunks.file_errors import name_file_errors
from smq_storage.chunks.parquet_codec import decode_footer, encode_chunk
from smq_storage.chunks.parquet_ranges import read_tail
from smq_storage.object_store.conditional_writes import ReadBackResult, RetryPolicy, WriteConflict, replace
from smq_storage.object_store.store import ObjectMissing, Store
from smq_storage.tables.file_statistics import compacted_file
from smq_storage.tables.segment_files import StoredSegment, load_file_list, lost_file

# The number after which a call ends, so that its caller can do something else.
MAX_CHUNKS_PER_CALL = 1000


@dataclass
class DeletedChunks:
    """``chunks`` and ``files`` were deleted, and ``replaced`` by a compacted chunk. ``complete``: nothing is left."""

    chunks: int = 0
    replaced: int = 0
    files: int = 0
    complete: bool = True


@dataclass
class _Run:
    """What is known of the chunks of one merged file."""

    file: FileEntry
    first: StoredChunk
    offsets: set[int] = field(default_factory=set)
    former_files: set[str] = field(default_factory=set)
    """The merged files of compacted chunks that are replaced or deleted."""


def delete_superseded(
    store: Store, segment: StoredSegment, retry_policy: RetryPolicy, max_chunks: int = MAX_CHUNKS_PER_CALL
) -> DeletedChunks:
    """Deletes about ``max_chunks`` superseded chunks at most. ``segment`` is as the index has it.

    Raises CorruptDocument, CorruptChunk and DataLost if something is not as the file list says: then no chunk of that
    merged file was deleted. Raises StoreUnavailable.
    """
    done = DeletedChunks()
    file_list = load_file_list(store, segment)
    if file_list is None:
        raise _not_as_expected(
            paths.file_list(segment.topic, segment.uid, segment.file_list), "is missing, though the index names it"
        )
    merged = [file for file in file_list.files if paths.is_compacted(file.path)]
    for file in merged:
        _check_file(store, segment, file)
    chain = ChunkChain(store, segment.topic, segment.uid, segment.name)
    listed = [first for it in chain.files() if (first := paths.first_offset(it.path)) is not None]
    for file in merged:
        if done.chunks >= max_chunks:
            done.complete = False
            break
        run = _read_run(chain, file, listed)
        if run is not None:
            _delete_run(store, chain, run, file_list, done, retry_policy)
    return done


def _check_file(store: Store, segment: StoredSegment, file: FileEntry) -> None:
    """Whether the merged file is there as it was written, with the rows of these offsets, by its footer."""
    with name_file_errors(
        store, file.path, file.etag, lambda: lost_file(file.path, segment.name, file.first, file.end)
    ):
        tail = read_tail(store, file.path, file.etag)
        rows = decode_footer(tail.data).num_rows
    if (tail.size, rows) != (file.bytes, file.rows):
        raise _not_as_expected(
            file.path, f"has {tail.size} bytes and {rows} rows, the file list says {file.bytes} and {file.rows}"
        )


def _read_run(chain: ChunkChain, file: FileEntry, listed: list[int]) -> _Run | None:
    """The chunks of the file, all checked; None if nothing is to be done."""
    first = chain.stored(file.first)
    if first is None:
        raise _not_as_expected(chain.path(file.first), "is missing")
    run = _Run(file, first, set(superseded_offsets(file, listed)))
    if _is_done(first, file) and not run.offsets:
        return None
    walked: dict[int, StoredChunk] = {}
    at = file.first
    while at < file.end and (chunk := first if at == file.first else chain.stored(at)) and not chunk.info.sealed:
        walked[at] = chunk
        at = chunk.info.end
    if at != file.end:
        raise _not_as_expected(chain.path(at), f"does not follow: {file.path} ends at offset {file.end}")
    for offset in run.offsets - walked.keys():
        if (left := chain.stored(offset)) is not None:
            walked[offset] = left
    run.offsets |= set(superseded_offsets(file, walked))
    infos = [it.info for it in walked.values() if not (it is first and _is_done(first, file))]
    if (why := why_kept(file, infos)) is not None:
        raise _not_as_expected(file.path, f"does not replace the chunks of its rows: {why}")
    former = (compacted_file(it.path, it.info) for it in walked.values())
    run.former_files = {it.path for it in former if it is not None and it.path != file.path}
    return run


def _is_done(first: StoredChunk, file: FileEntry) -> bool:
    """Whether the first chunk is the compacted chunk of this file already."""
    named = compacted_file(first.path, first.info)
    return named is not None and (named.path, named.etag, named.end) == (file.path, file.etag, file.end)


def _delete_run(
    store: Store,
    chain: ChunkChain,
    run: _Run,
    file_list: FileList,
    done: DeletedChunks,
    retry_policy: RetryPolicy,
) -> None:
    if not _is_done(run.first, run.file):
        _replace_first(store, chain, run, retry_policy)
        done.replaced += 1
    for offset in sorted(run.offsets):
        store.delete(chain.path(offset))
        done.chunks += 1
    for path in sorted(run.former_files - {file.path for file in file_list.files}):
        store.delete(path)
        done.files += 1


def _replace_first(store: Store, chain: ChunkChain, run: _Run, retry_policy: RetryPolicy) -> None:
    """Puts the compacted chunk in the place of the chunk that was read. Another process may have done it meanwhile."""
    info = compacted_chunk(run.first.info, run.file, run.file.path.rsplit("/", 1)[-1])
    schema = run.first.footer.schema.to_arrow_schema().remove_metadata()
    data = encode_chunk([], info, schema)

    def read_back(store: Store, path: str) -> ReadBackResult[ChunkInfo]:
        found = chain.stored(info.first)
        if found is None:
            raise ObjectMissing(path)
        return ReadBackResult(found.info, found.etag)

    path = run.first.path
    try:
        outcome = replace(
            store,
            path,
            data,
            run.first.etag,
            read_back=read_back,
            is_mine=lambda it: it.compacted == info.compacted,
            retry_policy=retry_policy,
        )
    except ObjectMissing:
        raise _not_as_expected(path, "was deleted meanwhile") from None
    if isinstance(outcome, WriteConflict):
        raise _not_as_expected(path, "was changed meanwhile")


def _not_as_expected(path: str, what: str) -> CorruptChunk:
    return CorruptChunk(f"{path} {what}", path=path)
