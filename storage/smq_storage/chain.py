"""The chain of a segment's chunks: the truth about what the segment contains.

The first chunk is named 0, each next one by the end of the one before; the seal chunk, without rows, is the last. An
object under a chunk's name is always part of the chain: whoever writes at an offset has seen every chunk before it.
So a name from a listing is worth a GET, and the GET decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from smq_core.model import ChunkInfo
from smq_storage import paths
from smq_storage.chunks import TAIL_BYTES, ChunkDamaged, Times, decode_info, encode_chunk, footer_bytes, read_chunk
from smq_storage.conditional import Found, Patience, Taken, Written, create
from smq_storage.schemas import chunk_schema
from smq_storage.store import Listed, ObjectMissing, Store

DEFAULT_PATIENCE = Patience()


class Chain:
    """One segment's chunks. All calls block; any may raise StoreUnavailable, and ChunkDamaged for a foreign object."""

    def __init__(self, store: Store, topic: str, uid: str, segment: str) -> None:
        self._store = store
        self._topic = topic
        self._uid = uid
        self.segment = segment

    def path(self, first: int) -> str:
        return paths.chunk(self._topic, self._uid, self.segment, first)

    def info(self, first: int) -> ChunkInfo | None:
        """What the chunk at this offset says; None when there is none. Reads the end of the file only."""
        try:
            return self._look(self._store, self.path(first)).value
        except ObjectMissing:
            return None

    def read(self, first: int, columns: Sequence[str] | None = None) -> tuple[ChunkInfo, pa.Table] | None:
        """The chunk at this offset with its rows (chunk schema), or None when there is none."""
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
        patience: Patience = DEFAULT_PATIENCE,
    ) -> ChunkInfo | Taken[ChunkInfo]:
        """Creates the chunk at ``info.first`` from wire batches and their append times (as encode_chunk).

        Returns ``info`` when it is there and mine (same writer, same nonce), ``Taken`` with the other's info when
        somebody else wrote at this offset. Raises StoreUnavailable, state unknown, when the patience ends.
        ValueError: the batches do not have ``info.rows`` rows.
        """
        rows = sum(batch.num_rows for batch, _ in batches)
        if rows != info.rows:
            raise ValueError(f"{rows} rows given, the chunk's info says {info.rows}")
        return self._create(info, encode_chunk(batches, info, schema), patience)

    def put_seal(
        self, info: ChunkInfo, patience: Patience = DEFAULT_PATIENCE, schema: pa.Schema | None = None
    ) -> ChunkInfo | Taken[ChunkInfo]:
        """Creates the seal chunk at ``info.first``; results and errors as :meth:`put`."""
        if not info.sealed or info.rows:
            raise ValueError("a seal chunk is sealed and has no rows")
        return self._create(info, encode_chunk([], info, schema or chunk_schema()), patience)

    def walk(self, start: int = 0) -> Iterator[ChunkInfo]:
        """The chunks from the one named ``start`` on, by GET of the next name, until one is absent or is the seal."""
        at: int | None = start
        while at is not None and (info := self.info(at)):
            yield info
            at = None if info.sealed else info.end

    def latest_hint(self) -> int:
        """The first offset of the last chunk in a listing, 0 when it is empty. Only a hint: it may be old."""
        return max(self._listed(), default=0)

    def seal(self, from_hint: int | None = None) -> ChunkInfo | None:
        """The seal chunk, or None when the segment is not sealed.

        Starts at the chunk named ``from_hint``, or at the last listed one; walks the whole chain when there is no
        chunk of that name.
        """
        return self._sealed_at_end(self.latest_hint() if from_hint is None else from_hint)

    def find(self, offset: int) -> int | None:
        """The first offset of the chunk that holds this offset, or None when the chain ends at or before it."""
        start = max((first for first in self._listed() if first <= offset), default=0)
        for begin in dict.fromkeys((start, 0)):
            for info in self.walk(begin):
                if info.first <= offset < info.end:
                    return info.first
            if self.info(begin):
                return None
        return None

    def files(self) -> list[Listed]:
        """The chunks in a listing, ordered by first offset: path, size, time. A hint, good for counting bytes."""
        folder = paths.segment_folder(self._topic, self._uid, self.segment)
        found = [o for o in self._store.list(folder) if paths.first_offset(o.path) is not None]
        return sorted(found, key=lambda o: o.path)

    def _sealed_at_end(self, start: int) -> ChunkInfo | None:
        for begin in dict.fromkeys((start, 0)):
            last = None
            for last in self.walk(begin):
                if last.sealed:
                    return last
            if last is not None:
                return None
        return None

    def _listed(self) -> list[int]:
        return [first for o in self.files() if (first := paths.first_offset(o.path)) is not None]

    def _create(self, info: ChunkInfo, data: pa.Buffer, patience: Patience) -> ChunkInfo | Taken[ChunkInfo]:
        if not (info.writer and info.nonce):
            raise ValueError("a chunk needs a writer and a nonce: its writer must recognise it")

        def is_mine(found: ChunkInfo) -> bool:
            return (found.writer, found.nonce) == (info.writer, info.nonce)

        path = self.path(info.first)
        outcome = create(self._store, path, data, look=self._look, is_mine=is_mine, patience=patience)
        return info if isinstance(outcome, Written) else outcome

    def _look(self, store: Store, path: str) -> Found[ChunkInfo]:
        tail = store.get_tail(path, TAIL_BYTES)
        try:
            need = footer_bytes(tail.data)
            if need > len(tail.data) and need <= tail.size:
                tail = store.get_tail(path, need)
            info = decode_info(tail.data)
        except ChunkDamaged as error:
            raise ChunkDamaged(f"{path}: {error.message}", path=path) from None
        return Found(info, tail.etag)
