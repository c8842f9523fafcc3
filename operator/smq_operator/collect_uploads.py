"""Files below ``_uploads/`` that nothing refers to: they were never published, or retention removed what named them.

A producer uploads a file first and publishes a reference to it later, so a young one may be about to be published. One
that is older than ``--strays-stay`` is deleted when no chunk of the topic names it. ``referenced`` is the one place
that says what a reference is: ``ChunkInfo.upload``. Nothing writes such chunks yet, so today every old upload goes; a
broker of a later version that writes them is respected already. It must not adopt uploads that are older than half of
``--strays-stay``: then whatever it writes while chunks are read here is of an upload that is too young to be deleted.

Chunks are found by walking each chain from offset 0, never by a listing: that takes a GET for each chunk of the topic,
and is done only when there is an old upload. A chunk that cannot be understood stops it, and nothing is deleted.

The uploads of a topic that was deleted go with its data (``collect_deleted.py``).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from smq_core.model import Topic
from smq_operator.collect_strays import delete_old
from smq_operator.retain import truth
from smq_storage import paths
from smq_storage.chain import Chain
from smq_storage.store import Store


def collect_uploads(store: Store, topic: Topic, stay: int) -> int:
    """Deletes uploads older than ``stay`` (microseconds) that no chunk names. Returns how many.

    Raises StoreUnavailable, ChunkDamaged.
    """
    before = datetime.now(UTC) - timedelta(microseconds=stay)
    old = [o.path for o in store.list(paths.uploads_folder(topic.name, topic.uid)) if o.modified <= before]
    known = truth(store, topic) if old else None  # after the listing
    if known is None:
        return 0
    segments = {segment.name for segment in known.layout.segments}
    segments |= {entry.name for entry in known.index.entries}
    segments |= {segment.name for segment in known.index.deleting}  # somebody may be in the middle of reading them
    kept = referenced(store, topic, segments)
    return sum(delete_old(store, path, before) for path in old if paths.upload_name(path) not in kept)


def referenced(store: Store, topic: Topic, segments: Iterable[str]) -> set[str]:
    """The names of the uploads that the chunks of these segments stand for."""
    return {
        info.upload
        for segment in sorted(segments)
        for info in Chain(store, topic.name, topic.uid, segment).walk()
        if info.upload is not None
    }
