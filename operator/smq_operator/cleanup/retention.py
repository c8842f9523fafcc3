"""Applies retention to one topic: removes entries from the index first, and their files later.

These functions block on the store. The leader that runs them may be stopped anywhere, or may have been replaced without
noticing:

* While an atomic publish is unfinished nothing is removed, because seal chunks tell how far it has come.
* Every removal is decided again from what the filer has at that moment: index, layout, and the name's current uid.
* A segment's age is measured with the leader's clock and with the filer's, and the smaller one counts, so a wrong clock
  removes nothing early (``filer_clock.py``). The same holds for the time since which a group has had no members.
* The same holds for the time since which a segment is removed. Its files stay for ``--removed-files-grace``, and as
  long as a reader's pin covers them (``reader_pins.py``).
* One compare-and-swap removes an entry from the index and records that its files are to be deleted. Before it nothing
  has happened; after it every later leader finds that record.
* The segment's file list says which files there are. It is deleted after them, so that the rest is always found. Where
  the index named none, the chain is walked, and its files are deleted from the end to the beginning. Large values are
  deleted before the chunks that name them.
* The record is removed when the files are deleted. All of it can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import structlog

from smq_core.model.entities import Layout, RemovedSegment, SealedSegment, Topic
from smq_core.reading.segment_dag import index_is_stale, layout_is_stale
from smq_core.reconcile.retention import GroupProgress, Removal, RetentionPlan, plan_retention
from smq_operator.cleanup.filer_clock import ClockReading
from smq_operator.cleanup.kafka_retention import KafkaReaders, hold_unread
from smq_operator.cleanup.reader_pins import end_expired_pins
from smq_operator.runtime.cleanup_settings import CleanupSettings
from smq_storage.catalog import layouts, paths, sealed_index
from smq_storage.catalog.filer_time import modified_at_or_none
from smq_storage.catalog.sealed_index import Index
from smq_storage.catalog.topics import read_current
from smq_storage.chunks.chain import ChunkChain
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import Store
from smq_storage.tables.file_lists import find_file_list

log = structlog.get_logger(__name__)

# The most segments that one pass removes, or whose files it deletes, so that other topics get their turn.
MAX_SEGMENTS_PER_PASS = 64

# An incarnation and a segment that it hosts.
StartedSegment = tuple[str, str]


IsHeld = Callable[[Store, Topic, RetryPolicy], bool]


@dataclass(frozen=True, slots=True)
class ConsistentState:
    """Index and layout of a living topic, read in this order, neither of which is older than the other.

    So the layout names no segment that retention has removed.
    """

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
    known: ConsistentState | None,
    groups: Sequence[GroupProgress],
    started: Collection[StartedSegment],
    clocks: ClockReading,
    retry_policy: RetryPolicy,
    is_held: IsHeld = lambda store, topic, retry_policy: False,
    readers: KafkaReaders | None = None,
) -> RetentionPlan:
    """Removes from the index what is beyond the topic's limits; returns what it removed, and what it keeps for groups.

    ``clocks`` and ``known`` were read before ``groups``, because a group that begins later may need what expires later.
    ``started``: segments whose primary (incarnation, segment) has read the seal chunks of its predecessors; before that
    the predecessors are needed. ``is_held`` says whether nothing must be removed. It is called after the index was
    read, so what begins later concerns no segment of that index. ``readers`` are groups of Kafka clients. Raises
    StoreUnavailable; some segments may have been removed then.
    """
    if known is None:
        return RetentionPlan([], {})
    return remove_of(store, topic, known, groups, started, clocks, retry_policy, is_held, readers)


def remove_of(
    store: Store,
    topic: Topic,
    known: ConsistentState,
    groups: Sequence[GroupProgress],
    started: Collection[StartedSegment],
    clocks: ClockReading,
    retry_policy: RetryPolicy,
    is_held: IsHeld,
    readers: KafkaReaders | None = None,
    *,
    preview: bool = False,
) -> RetentionPlan:
    """As :func:`remove_expired`. A preview removes nothing, and compares no clocks."""
    readers = readers or KafkaReaders(())
    needed = {
        name
        for segment in known.layout.segments
        if (segment.primary.incarnation, segment.name) not in started
        for name in segment.predecessors
    }
    needed |= {entry.name for entry in known.index.entries if entry.name in known.layout}
    verdict = plan_retention(topic.spec, known.index.entries, groups, clocks.leader, needed)
    verdict = hold_unread(store, topic, verdict, readers, clocks.leader, MAX_SEGMENTS_PER_PASS)
    if verdict.removals and is_held(store, topic, retry_policy):
        log.info("retention.held", topic=topic.name, segments=len(verdict.removals), because="unfinished publish")
        return RetentionPlan([], {})
    if preview:
        return verdict
    if verdict.removals:
        entries = _verified_ages(store, topic, known.index.entries, verdict, clocks)
        active_groups = [_verified_activity(store, topic, group, clocks) for group in groups]
        verdict = plan_retention(topic.spec, entries, active_groups, clocks.leader, needed)
        verdict = hold_unread(store, topic, verdict, readers, clocks.leader, 0)
    readers.forget_all_but(verdict.retained)
    removals = verdict.removals[:MAX_SEGMENTS_PER_PASS]
    if removals:
        removed = [_removed_segment(removal, clocks) for removal in removals]
        sealed_index.remove(store, topic.name, topic.uid, removed, retry_policy)
    return RetentionPlan(removals, verdict.retained)


def _verified_ages(
    store: Store, topic: Topic, entries: Sequence[SealedSegment], plan: RetentionPlan, clocks: ClockReading
) -> list[SealedSegment]:
    """The entries, each sealed as late as both clocks allow. Those that are not checked in this pass do not expire."""
    limit = topic.spec.retention_age
    if limit is None:
        return list(entries)
    checked = {removal.segment.name for removal in plan.removals[:MAX_SEGMENTS_PER_PASS]}
    verified = []
    for entry in entries:
        if clocks.leader - entry.sealed_at > limit and entry.name not in plan.retained:
            age = 0
            if entry.name in checked:
                age = _age_of_seal(store, topic, entry, clocks)
            entry = replace(entry, sealed_at=clocks.leader - age)
        verified.append(entry)
    return verified


def _age_of_seal(store: Store, topic: Topic, entry: SealedSegment, clocks: ClockReading) -> int:
    """The age by both clocks; 0 if the filer does not return the seal chunk.

    The next pass reads again, so an answer that is out of date only delays the removal. If somebody deleted the chunk,
    the segment does not expire by age any more, and each pass logs it.
    """
    path = ChunkChain(store, topic.name, topic.uid, entry.name).path(entry.end)
    sealed_at = modified_at_or_none(store, path)
    if sealed_at is None:
        log.warning("retention.seal_chunk_missing", segment=entry.name, path=path)
        return 0
    return clocks.age(entry.sealed_at, sealed_at)


def _verified_activity(store: Store, topic: Topic, group: GroupProgress, clocks: ClockReading) -> GroupProgress:
    """The group, as active as the later of its two times of last activity says."""
    after = topic.spec.retention_abandoned_after
    if group.last_active_at is None or after is None or clocks.leader - group.last_active_at <= after:
        return group
    idle = clocks.age(group.last_active_at, modified_at_or_none(store, paths.group(topic.name, topic.uid, group.name)))
    return replace(group, last_active_at=clocks.leader - idle)


def _removed_segment(removal: Removal, clocks: ClockReading) -> RemovedSegment:
    it = removal.segment
    return RemovedSegment(
        name=it.name,
        number=it.number,
        end=it.end,
        removed_at=clocks.leader,
        bytes=it.bytes,
        unread=removal.unread,
        filer_removed_at=clocks.filer,
    )


def age_of_removal(segment: RemovedSegment, clocks: ClockReading) -> int:
    """How long ago the segment was removed: the smaller age of both clocks."""
    return clocks.age(segment.removed_at, segment.filer_removed_at)


def delete_files(
    store: Store, topic: Topic, clocks: ClockReading, settings: CleanupSettings, retry_policy: RetryPolicy
) -> tuple[list[RemovedSegment], int]:
    """Deletes the files of segments whose grace is over, and that no pin covers. Returns segments and number of files.

    Raises StoreUnavailable; some files may be deleted then, and the next call deletes the rest.
    """
    known = read_consistent(store, topic)
    if known is None:
        return [], 0
    grace_us = settings.removed_files_grace_us
    due = [it for it in known.index.pending_deletion if age_of_removal(it, clocks) >= grace_us]
    if not due:
        return [], 0
    pinned = end_expired_pins(store, topic, clocks, settings.max_pin_age_us, retry_policy)  # after the index
    due = [segment for segment in due if not pinned.covers(segment.number)][:MAX_SEGMENTS_PER_PASS]
    count = sum(delete_segment(store, topic, segment) for segment in due)
    if due:
        sealed_index.mark_files_deleted(store, topic.name, topic.uid, [segment.name for segment in due], retry_policy)
    return due, count


def delete_segment(store: Store, topic: Topic, segment: RemovedSegment | SealedSegment) -> int:
    """Deletes a segment's large values, its files, the last one first, and its file list.

    Returns the number of objects without file lists. Raises StoreUnavailable.
    """
    # File list or walk find chunks that the listing is too old to contain; the listing finds files that are no chunks.
    files, large_values = _files_of(store, topic, segment)
    for folder in (paths.segment_folder, paths.compacted_folder):
        files |= {o.path for o in store.list(folder(topic.name, topic.uid, segment.name))}
    for path in (*sorted(large_values), *sorted(files, reverse=True)):
        store.delete(path)
    for name in {segment.file_list, paths.file_list_name(segment.name, 0)} - {""}:
        store.delete(paths.file_list(topic.name, topic.uid, name))
    return len(files) + len(large_values)


def _files_of(store: Store, topic: Topic, segment: RemovedSegment | SealedSegment) -> tuple[set[str], set[str]]:
    """The files in the segment's folder, and the objects with its large values, which no other segment has.

    Both are from its file list, or from a walk of its chain if it has none.
    """
    chain = ChunkChain(store, topic.name, topic.uid, segment.name)
    file_list = find_file_list(store, topic.name, topic.uid, segment.file_list)
    if file_list is None:
        found = set[str](), set[str]()
        for info in chain.walk():
            found[0].add(chain.path(info.first))
            found[1].update(paths.large_value(topic.uid, name) for name in info.large_values)
        return found
    large_values = {paths.large_value(topic.uid, name) for file in file_list.files for name in file.large_values}
    folder = paths.segment_folder(topic.name, topic.uid, segment.name)
    # Of rows in an upload, which belongs to all segments, the chain has a reference chunk under its own name.
    chunks = {chain.path(first) for first in (*(file.first for file in file_list.files), segment.end)}
    chunks |= {file.path for file in file_list.files if file.path.startswith(f"{folder}/")}
    return chunks, large_values
