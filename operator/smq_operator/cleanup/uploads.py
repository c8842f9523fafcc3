"""Deletes old files below ``_uploads/`` that no chunk refers to.

They were never published, or retention removed their chunk.

A producer uploads a file first and publishes a reference to it later, so a young file may be about to be published. A
file older than ``--orphaned-files-grace`` is deleted if no chunk of the topic names it. ``referenced`` alone defines
what a reference is: ``ChunkInfo.upload``. No broker writes such chunks yet, so today every old upload is deleted, but a
later broker that writes them is respected already. It must not adopt uploads that are older than half of
``--orphaned-files-grace``; then every upload that it adopts while chunks are read here is too young to be deleted.

Chunks are found by walking each chain from offset 0, never by a listing. That takes a GET for each chunk of the topic,
so it is done only if there is an old upload. A chunk that cannot be read stops it, and nothing is deleted.

The uploads of a deleted topic are deleted with its data (``deleted_topics.py``).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from smq_core.model.entities import Topic
from smq_operator.cleanup.orphaned_files import delete_if_older
from smq_operator.cleanup.retention import read_consistent
from smq_storage.catalog import paths
from smq_storage.chunks.chain import ChunkChain
from smq_storage.object_store.store import Store


def collect_unreferenced_uploads(store: Store, topic: Topic, before: datetime) -> int:
    """Deletes uploads older than ``before``, in the filer's time, that no chunk names. Returns how many.

    Raises StoreUnavailable, CorruptChunk.
    """
    old = [o.path for o in store.list(paths.uploads_folder(topic.uid)) if o.modified <= before]
    known = read_consistent(store, topic) if old else None  # after the listing
    if known is None:
        return 0
    segments = {segment.name for segment in known.layout.segments}
    segments |= {entry.name for entry in known.index.entries}
    segments |= {segment.name for segment in known.index.pending_deletion}  # a reader may still be reading them
    kept = referenced(store, topic, segments)
    return sum(delete_if_older(store, path, before) for path in old if paths.upload_name(path) not in kept)


def referenced(store: Store, topic: Topic, segments: Iterable[str]) -> set[str]:
    """The names of the uploads that the chunks of these segments refer to."""
    return {
        info.upload
        for segment in sorted(segments)
        for info in ChunkChain(store, topic.name, topic.uid, segment).walk()
        if info.upload is not None
    }
