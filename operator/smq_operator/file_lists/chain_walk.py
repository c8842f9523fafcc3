"""Builds the file list of one sealed segment from its chunk chain, in several passes if the chain is long."""

from __future__ import annotations

from smq_core.errors import CorruptChunk
from smq_core.file_lists.file_list import FileList
from smq_core.file_lists.file_list_draft import FileListDraft
from smq_core.model.entities import Micros, Topic
from smq_storage.chunks.chain import ChunkChain
from smq_storage.object_store.store import Store
from smq_storage.tables.file_statistics import file_entry


class ChainWalk:
    """Goes on where the last call ended. A chunk never changes, so what was read stays true.

    ``advanced_at``: when the last chunk was found. The calls block on the store.
    """

    def __init__(self, store: Store, topic: Topic, segment: str, now: Micros) -> None:
        self._chain = ChunkChain(store, topic.name, topic.uid, segment)
        self._key = topic.spec.key
        self._draft = FileListDraft(segment)
        self._sealed_at: int | None = None
        self.advanced_at = now

    def advance(self, max_chunks: int, now: Micros) -> int:
        """Reads at most ``max_chunks``, and returns how many it read. Raises StoreUnavailable, CorruptChunk."""
        read = 0
        while read < max_chunks and self._sealed_at is None:
            chunk = self._chain.stored(self._draft.end)
            if chunk is None:
                break
            read += 1
            self.advanced_at = now
            if chunk.info.sealed:
                self._sealed_at = chunk.info.first
            elif chunk.info.rows <= 0:
                raise CorruptChunk(f"{chunk.path} has no rows, but does not seal the segment", path=chunk.path)
            else:
                self._draft.add(file_entry(chunk, self._key))
        return read

    def file_list(self, end: int) -> FileList | None:
        """The file list of the segment, or None while the seal chunk was not read.

        Raises CorruptChunk if the chain ends elsewhere than ``end``, as the index has it.
        """
        if self._sealed_at is None:
            return None
        if self._sealed_at != end:
            path = self.missing_path
            raise CorruptChunk(f"{path} seals the segment at {self._sealed_at}, but the index at {end}", path=path)
        return self._draft.file_list(end)

    @property
    def missing_path(self) -> str:
        """The path of the chunk that comes next."""
        return self._chain.path(self._draft.end)
