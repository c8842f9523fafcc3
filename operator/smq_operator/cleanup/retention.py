"""Applies retention to one topic: removes entries from the index first, and their files later.

These functions block on the store. The leader that runs them may be stopped anywhere, or may have been replaced without
noticing:

* Every removal is decided again from what the filer has at that moment: index, layout, and the name's current uid.
* One compare-and-swap removes an entry from the index and records that its files are to be deleted. Before it nothing
  has happened; after it every later leader finds that record.
* Files are deleted from the end of the chain to its beginning, so that the rest is always found from offset 0.
* The record is removed when the files are deleted. All of it can be repeated.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from smq_core.model.entities import Layout, RemovedSegment, Topic
from smq_core.reading.segment_dag import index_is_stale, layout_is_stale
from smq_core.reconcile.retention import GroupProgress, Removal, RetentionPlan, plan_retention
from smq_storage.catalog import layouts, paths, sealed_index
from smq_storage.catalog.sealed_index import Index
from smq_storage.catalog.topics import read_current
from smq_storage.chunks.chain import ChunkChain
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import Store

MAX_SEGMENTS_PER_PASS = 64
"""The most segments that one pass removes, or whose files it deletes, so that other topics get their turn."""

StartedSegment = tuple[str, str]
"""An incarnation and a segment that it hosts."""


@dataclass(frozen=True, slots=True)
class ConsistentState:
    """Index and layout of a living topic, read in this order, neither of which is older than the other."""

    index: Index
    layout: Layout


def read_consistent(store: Store, topic: Topic) -> ConsistentState | None:
    """None if the name belongs to another topic by now, or if index and layout do not match (yet)."""
    found = sealed_index.load(store, topic.name, topic.uid)
    layout = layouts.read_layout(store, topic.name, topic.uid)
    current = read_current(store, topic.name)
    if layout is None or current is None or current[0] != topic.uid:
        return None
    known = (layout[0], found.entries, found.removed)
    if index_is_stale(*known) or layout_is_stale(*known):
        return None
    return ConsistentState(found, layout[0])


def remove_expired(
    store: Store,
    topic: Topic,
    groups: Sequence[GroupProgress],
    started: Collection[StartedSegment],
    now: int,
    retry_policy: RetryPolicy,
) -> RetentionPlan:
    """Removes from the index what is beyond the topic's limits; returns what it removed, and what it keeps for groups.

    ``started``: segments whose primary (incarnation, segment) has read the seal chunks of its predecessors; before that
    the predecessors are needed. Raises StoreUnavailable; some segments may have been removed then.
    """
    known = read_consistent(store, topic)
    if known is None:
        return RetentionPlan([], {})
    needed = {
        name
        for segment in known.layout.segments
        if (segment.primary.incarnation, segment.name) not in started
        for name in segment.predecessors
    }
    needed |= {entry.name for entry in known.index.entries if entry.name in known.layout}
    verdict = plan_retention(topic.spec, known.index.entries, groups, now, needed)
    removals = verdict.removals[:MAX_SEGMENTS_PER_PASS]
    if removals:
        sealed_index.remove(
            store, topic.name, topic.uid, [_removed_segment(removal, now) for removal in removals], retry_policy
        )
    return RetentionPlan(removals, verdict.retained)


def _removed_segment(removal: Removal, now: int) -> RemovedSegment:
    it = removal.segment
    return RemovedSegment(it.name, it.number, it.end, now, it.bytes, unread=removal.unread)


def delete_files(
    store: Store, topic: Topic, before: int, retry_policy: RetryPolicy
) -> tuple[list[RemovedSegment], int]:
    """Deletes the files of segments that were removed at or before this time. Returns segments and number of files.

    Raises StoreUnavailable; some files may be deleted then, and the next call deletes the rest.
    """
    known = read_consistent(store, topic)
    if known is None:
        return [], 0
    living = {entry.name for entry in known.index.entries}
    due = [
        segment
        for segment in known.index.pending_deletion
        if segment.removed_at <= before and segment.name not in living and segment.name not in known.layout
    ][:MAX_SEGMENTS_PER_PASS]
    count = sum(delete_segment(store, topic, segment.name) for segment in due)
    if due:
        sealed_index.mark_files_deleted(store, topic.name, topic.uid, [segment.name for segment in due], retry_policy)
    return due, count


def delete_segment(store: Store, topic: Topic, segment: str) -> int:
    """Deletes a segment's files, the last one first. Returns their number. Raises StoreUnavailable."""
    chain = ChunkChain(store, topic.name, topic.uid, segment)
    # The walk finds chunks that the listing is too old to contain; the listing finds files that are no chunks.
    files = {chain.path(info.first) for info in chain.walk()}
    files |= {o.path for o in store.list(paths.segment_folder(topic.name, topic.uid, segment))}
    for path in sorted(files, reverse=True):
        store.delete(path)
    return len(files)
