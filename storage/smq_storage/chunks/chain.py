"""The chain of a segment's chunks: the truth about what the segment contains.

The first chunk is named 0, each next one by the end of the one before. The seal chunk, without rows, is the last. An
object under a chunk's name is always part of the chain, because a process writes at an offset only after it has seen
every chunk before it. So a name from a listing is a hint, and a GET of it decides.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from smq_core.errors import CorruptChunk, StoreUnavailable
from smq_core.model.chunk_info import ChunkInfo
from smq_storage.catalog import paths
from smq_storage.chunks.parquet_codec import Times, decode_footer, encode_chunk, info_of, read_chunk
from smq_storage.chunks.parquet_ranges import read_tail
from smq_storage.chunks.schemas import chunk_schema
from smq_storage.object_store import absence
from smq_storage.object_store.conditional_writes import (
    ReadBackResult,
    RetryPolicy,
    WriteConflict,
    create,
)
from smq_storage.object_store.store import ObjectInfo, ObjectMissing, Store

DEFAULT_RETRY_POLICY = RetryPolicy()


class StoredChunk(NamedTuple):
    """A chunk as it is in the filer: path, size in bytes, etag and Parquet footer of its file."""

    info: ChunkInfo
    path: str
    bytes: int
    etag: str
    footer: pq.FileMetaData


class ChunkChain:
    """One segment's chunks. All calls block. Any may raise StoreUnavailable, and CorruptChunk for a foreign object."""

    def __init__(self, store: Store, topic: str, uid: str, segment: str) -> None:
        self._store = store
        self._topic = topic
        self._uid = uid
        self.segment = segment

    def path(self, first: int) -> str:
        return paths.chunk(self._topic, self._uid, self.segment, first)

    def info(self, first: int) -> ChunkInfo | None:
        """The info of the chunk at this offset, or None if there is none. Reads the end of the file only."""
        stored = self.stored(first)
        return stored.info if stored is not None else None

    def stored(self, first: int) -> StoredChunk | None:
        """The chunk at this offset as it is stored, or None if there is none. Reads the end of the file only."""
        try:
            return _read_end(self._store, self.path(first))
        except ObjectMissing:
            return None

    def read(self, first: int, columns: Sequence[str] | None = None) -> tuple[ChunkInfo, pa.Table] | None:
        """The chunk at this offset with its rows (chunk schema), or None if there is none."""
        try:
            data = self._store.get(self.path(first)).data
        except ObjectMissing:
            return None
        return read_chunk(data, columns)

    def put(
        self,
        info: ChunkInfo,
        batches: Sequence[tuple[pa.RecordBatch, Times]],
        schema: pa.Schema,
        retry_policy: RetryPolicy = DEFAULT_RETRY_POLICY,
        key: str = "key",
    ) -> StoredChunk | WriteConflict[ChunkInfo]:
        """Creates the chunk at ``info.first`` from wire batches and their append times (as encode_chunk).

        Returns the chunk if it is there with the same writer and nonce, or ``WriteConflict`` with the info of the
        chunk that another writer created. ``key`` names the key column. Raises StoreStateUnknown if the policy's time
        ends, ValueError if the batches do not have ``info.rows`` rows, or any at all although the chunk has a
        reference.
        """
        rows = sum(batch.num_rows for batch, _ in batches)
        expected = info.rows if info.reference is None else 0
        if rows != expected:
            raise ValueError(f"{rows} rows given, the chunk's info says {expected}")
        return self._create(info, encode_chunk(batches, info, schema, key), retry_policy)

    def put_seal(
        self, info: ChunkInfo, retry_policy: RetryPolicy = DEFAULT_RETRY_POLICY, schema: pa.Schema | None = None
    ) -> ChunkInfo | WriteConflict[ChunkInfo]:
        """Creates the seal chunk at ``info.first`` and returns ``info``; otherwise as :meth:`put`."""
        if not info.sealed or info.rows:
            raise ValueError("a seal chunk is sealed and has no rows")
        created = self._create(info, encode_chunk([], info, schema or chunk_schema()), retry_policy)
        return created if isinstance(created, WriteConflict) else info

    def walk(self, start: int = 0) -> Iterator[ChunkInfo]:
        """The chunks from ``start`` on, by GET of the next name, up to the seal chunk or the first absent one."""
        return (stored.info for stored in self.walk_stored(start))

    def walk_stored(self, start: int = 0) -> Iterator[StoredChunk]:
        """As :meth:`walk`, with what is known of the files."""
        at: int | None = start
        while at is not None and (stored := self.stored(at)):
            yield stored
            at = None if stored.info.sealed else stored.info.end

    def expect_all(self) -> None:
        """Says that all chunks will be read. Lists them only if that speeds reads up."""

        def listed() -> Iterator[str]:
            yield from (it.path for it in self.files())

        self._store.expect(listed())

    def latest_hint(self) -> int:
        """The first offset of the last chunk in a listing, 0 if there is none. A hint, as listings may be old."""
        return max(self._listed(), default=0)

    def last(self, from_hint: int | None = None) -> ChunkInfo | None:
        """The last chunk now, the seal chunk or an earlier one; None if the chain is empty.

        Starts at the chunk named ``from_hint``, or at the last listed one; walks the whole chain if there is no
        chunk of that name.
        """
        for begin in dict.fromkeys((self.latest_hint() if from_hint is None else from_hint, 0)):
            if (last := next(iter(deque(self.walk(begin), maxlen=1)), None)) is not None:
                return last
        return None

    def end(self) -> int:
        """Where the chain ends now, at its seal chunk or before."""
        last = self.last()
        return last.end if last is not None else 0

    def snapshot_hint(self) -> int:
        """Where a walk may begin that needs the state of all producers: at a chunk that has it, or at offset 0."""
        hint = self.latest_hint()
        info = self.info(hint) if hint else None
        if info is None:
            return 0
        if info.snapshot_at is None:
            return info.first
        return info.snapshot_at if self.info(info.snapshot_at) is not None else 0

    def read_seal_chunk(self, from_hint: int | None = None) -> ChunkInfo | None:
        """The seal chunk, or None if the segment is not sealed. ``from_hint`` as in :meth:`last`."""
        last = self.last(from_hint)
        return last if last is not None and last.sealed else None

    def find(self, offset: int) -> int | None:
        """The first offset of the chunk that holds this offset, or None if the chain ends at or before it."""
        start = max((first for first in self._listed() if first <= offset), default=0)
        for begin in dict.fromkeys((start, 0)):
            for info in self.walk(begin):
                if info.first <= offset < info.end:
                    return info.first
            if self.info(begin):
                return None
        return None

    def confirm_missing(self, offset: int) -> None:
        """Returns if a second look after a pause finds no chunk with this offset either, or raises StoreUnavailable.

        Call it before somebody is told that the messages from ``offset`` on are lost.
        """
        time.sleep(absence.CONFIRM_AFTER_SECONDS)
        if self.find(offset) is not None:
            raise StoreUnavailable(
                f"the filer answered that no chunk of {self.segment} has offset {offset}, although one has it: the "
                "read is repeated"
            )

    def files(self) -> list[ObjectInfo]:
        """The chunks in a listing, ordered by first offset: path, size, time. A hint, good enough to count bytes."""
        folder = paths.segment_folder(self._topic, self._uid, self.segment)
        found = [o for o in self._store.list(folder) if paths.first_offset(o.path) is not None]
        return sorted(found, key=lambda o: o.path)

    def _listed(self) -> list[int]:
        return [first for o in self.files() if (first := paths.first_offset(o.path)) is not None]

    def _create(
        self, info: ChunkInfo, data: pa.Buffer, retry_policy: RetryPolicy
    ) -> StoredChunk | WriteConflict[ChunkInfo]:
        if not (info.writer and info.nonce):
            raise ValueError("a chunk needs a writer and a nonce, by which it is recognised")

        def is_mine(found: ChunkInfo) -> bool:
            return (found.writer, found.nonce) == (info.writer, info.nonce)

        path = self.path(info.first)
        outcome = create(self._store, path, data, read_back=_read_back_info, is_mine=is_mine, retry_policy=retry_policy)
        if isinstance(outcome, WriteConflict):
            return outcome
        return StoredChunk(info, path, data.size, outcome.etag, decode_footer(data))


def _read_back_info(store: Store, path: str) -> ReadBackResult[ChunkInfo]:
    stored = _read_end(store, path)
    return ReadBackResult(stored.info, stored.etag)


def _read_end(store: Store, path: str) -> StoredChunk:
    try:
        tail = read_tail(store, path)
        footer = decode_footer(tail.data)
        return StoredChunk(info_of(footer), path, tail.size, tail.etag, footer)
    except CorruptChunk as error:
        raise CorruptChunk(f"{path}: {error.message}", path=path) from None
