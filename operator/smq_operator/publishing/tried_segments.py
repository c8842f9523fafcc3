"""Reads from the filer which segments may have rows of a publish, and how many batches of it the sealed ones have."""

from __future__ import annotations

from dataclasses import dataclass

from smq_core.errors import StoreUnavailable, Unavailable
from smq_core.model.atomic_publish import AppState, AtomicPublish
from smq_core.model.entities import Layout, SealedSegment, Topic
from smq_core.producing.tried_segments import TriedSegments, find_tried_segments, last_sequence
from smq_core.reading.segment_dag import index_is_stale
from smq_storage.catalog import layouts, sealed_index
from smq_storage.catalog.atomic_publishes import read_newest_publishes, read_publishes
from smq_storage.chunks.chain import ChunkChain
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import Store


@dataclass(frozen=True, slots=True)
class ReadSegments:
    """``last_sequences`` are those of the sealed segments, by number."""

    layout: Layout
    tried: TriedSegments
    last_sequences: dict[int, int]


def read_tried_segments(
    store: Store, topic: Topic, app: AppState, publish: AtomicPublish, known: dict[int, int], retry_policy: RetryPolicy
) -> ReadSegments | None:
    """``known`` has last sequences that were read before, which never change.

    None if another leader has completed the publish: then retention may have removed segments with rows of it, which
    would seem to be missing. Raises Unavailable if the filer's answers do not fit together yet.
    """
    found = layouts.read_layout(store, topic.name, topic.uid)
    if found is None or found[0].deleted:
        raise Unavailable(f"{topic.name} has no layout any more")
    # The layout first: a segment that has left it is in the index already.
    index = sealed_index.load(store, topic.name, topic.uid)
    # By their links: the numbers have gaps after a layout was rebuilt.
    if index_is_stale(found[0], index.entries, index.removed):
        raise Unavailable(f"layout and index of {topic.name} do not fit together yet: try again")
    tried = find_tried_segments(publish.layout, found[0], index.entries)
    for number, entry in tried.sealed.items():
        if number not in known:
            known[number] = _last_sequence(store, topic, entry, app)
    # After the index: what it lacks while the publish is unfinished was sealed before the commit.
    if publish.layout.has_any(index.removed):
        document = read_newest_publishes(store, topic.name, topic.uid, retry_policy)
        if document is None:
            raise Unavailable(f"the publishes of {topic.name} are being changed: try again")
    else:  # nothing that may have rows is removed, so an answer that is out of date does no harm
        document = read_publishes(store, topic.name, topic.uid)
    present = document.app(app.app)
    if present is None or present.unfinished is None or present.epoch != app.epoch:
        return None
    return ReadSegments(found[0], tried, known)


def last_sequence_before_forgotten(
    store: Store, topic: Topic, app: AppState, segment: str, forgotten_upto: int
) -> tuple[int, int]:
    """The last batch of the publish in an open segment that has forgotten producers, perhaps this one; -1 if none.

    And the offset up to which that was checked, which may be higher than ``forgotten_upto``. Raises Unavailable while
    batches of forgotten producers may be in memory only.
    """
    last, end = _last_in_chain(store, topic, segment, app)
    if end < forgotten_upto:
        raise Unavailable(f"{segment} has not yet written messages to the filer that may be of app {app.app!r}")
    return last, end


def _last_sequence(store: Store, topic: Topic, entry: SealedSegment, app: AppState) -> int:
    info = ChunkChain(store, topic.name, topic.uid, entry.name).info(entry.end)
    if info is None or not info.sealed:
        raise StoreUnavailable(f"the filer does not return the seal chunk of {entry.name} at {entry.end}")
    last = last_sequence(info.producers, app)
    if last is None and info.forgotten_upto:
        last, end = _last_in_chain(store, topic, entry.name, app)
        if end < entry.end:  # a chunk behind it may have batches of this app
            raise StoreUnavailable(f"the filer does not return the chunk of {entry.name} at {end}")
    return -1 if last is None else last


def _last_in_chain(store: Store, topic: Topic, segment: str, app: AppState) -> tuple[int, int]:
    """The last sequence of this publish that any chunk has, -1 if none has one, and the end of the chain."""
    last, end = -1, 0
    for info in ChunkChain(store, topic.name, topic.uid, segment).walk():
        found = last_sequence(info.producers, app)
        last, end = max(last, -1 if found is None else found), info.end
    return last, end
