"""Builds the manifest of one sealed segment from its chunk chain, in several passes if the chain is long."""

from __future__ import annotations

from smq_core.errors import CorruptChunk
from smq_core.manifests.manifest_draft import ManifestDraft
from smq_core.manifests.segment_manifest import SegmentManifest
from smq_core.model.entities import Micros, Topic
from smq_storage.chunks.chain import ChunkChain
from smq_storage.object_store.store import Store
from smq_storage.tables.file_statistics import manifest_file


class ChainWalk:
    """Goes on where the last call ended. A chunk never changes, so what was read stays true.

    ``advanced_at``: when the last chunk was found. The calls block on the store.
    """

    def __init__(self, store: Store, topic: Topic, segment: str, now: Micros) -> None:
        self._chain = ChunkChain(store, topic.name, topic.uid, segment)
        self._key = topic.spec.key
        self._draft = ManifestDraft(segment)
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
                self._draft.add(manifest_file(chunk, self._key))
        return read

    def manifest(self, end: int) -> SegmentManifest | None:
        """The manifest of the segment, or None while the seal chunk was not read.

        Raises CorruptChunk if the chain ends elsewhere than ``end``, as the index has it.
        """
        if self._sealed_at is None:
            return None
        if self._sealed_at != end:
            path = self.missing_path
            raise CorruptChunk(f"{path} seals the segment at {self._sealed_at}, but the index at {end}", path=path)
        return self._draft.manifest(end)

    @property
    def missing_path(self) -> str:
        """The path of the chunk that comes next."""
        return self._chain.path(self._draft.end)
