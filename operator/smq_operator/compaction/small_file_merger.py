"""Merges the small files of sealed segments in the background, so that a reader of old data needs few requests.

It runs beside the reconcile loop and is level-triggered: the file lists say what is to be merged, so no state
has to survive a leader. Which file lists have small files is known from the namer, which has read them, so a topic
without any costs no request. Everything can be interrupted anywhere. A leader that was replaced without noticing, ``smq
topic compact`` or the Spark job may merge the same files: one compare-and-swap of the index decides, and what the
others have written is deleted with the segment.

It must not disturb what the leader is there for. So it merges one run of files at a time in the whole process. It reads
its files one after the other in a thread of the store's pool, and then pauses for longer than that took.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import pyarrow as pa
import structlog

from smq_core.errors import CorruptChunk, CorruptDocument, DataLost, SmqError
from smq_core.file_lists.compaction_plan import FileRun
from smq_core.file_lists.file_list import FileEntry
from smq_core.model.entities import SECOND, SealedSegment, Topic
from smq_operator.reconcile.topics.managed_topic import ManagedTopic
from smq_operator.runtime.clock import Clock
from smq_operator.runtime.merge_settings import MergeSettings
from smq_operator.runtime.store_pool import StorePool
from smq_operator.runtime.task_runner import TaskRunner
from smq_storage.catalog import paths, sealed_index
from smq_storage.compaction.file_list_switch import plan_small_files, write_next_file_list
from smq_storage.compaction.merging import MergeLimits, merge_run
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import Store
from smq_storage.tables.segment_files import StoredSegment, load_file_list

log = structlog.get_logger(__name__)

TICK_SECONDS = 1.0
# Encoded, sorted and decoded rows of one part are in memory together: about 100 MiB, 200 if they compress well.
LIMITS = MergeLimits(readers=1, decoded_bytes=32 * 1024 * 1024)
# A pause is this times as long as the run before it, so merging takes a quarter of the time at most.
PAUSE_FACTOR = 3.0
# Then the index names what is merged, so that another leader does not begin anew, and another topic has its turn.
MAX_RUNS_PER_SWITCH = 16
RETRY_AFTER_US, MAX_RETRY_AFTER_US = 10 * SECOND, 3600 * SECOND
"""The backoff of a segment whose merge failed. Damaged files are tried again after the longest."""


# What somebody has to repair.
_Damage: TypeAlias = CorruptChunk | CorruptDocument | DataLost


class SmallFileSource(Protocol):
    """Knows which file lists have small files, without another request."""

    def small_files(self, uid: str) -> Mapping[str, str]:
        """The file lists with small files worth merging, by segment of the topic with this uid."""
        ...


@dataclass(slots=True)
class _Candidate:
    """A segment with small files. Times are the leader's. ``unreadable`` is the path that is reported, if one is."""

    file_list: str
    seen_at: int
    retry_at: int = 0
    failures: int = 0
    unreadable: str = ""


class SmallFileMerger:
    """See the module's docstring. Use it on the event loop; its counters are for the metrics."""

    def __init__(
        self,
        *,
        topics: Mapping[str, ManagedTopic],
        source: SmallFileSource,
        store: StorePool,
        tasks: TaskRunner,
        clock: Clock,
        settings: MergeSettings,
    ) -> None:
        self._topics = topics
        self._source = source
        self._store = store
        self._problems = tasks.problems
        self._now = clock
        self._policy = settings.policy
        self._after_us = settings.after_us
        self._candidates: dict[tuple[str, str], _Candidate] = {}
        """By uid of the topic and segment."""
        self.replaced_files = 0
        """Small files in whose place the index names merged ones."""
        self.replaced_bytes = 0
        self.merged_files = 0
        self.failures = 0

    async def run(self) -> None:
        """Runs until it is cancelled."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            await self.run_pass()

    async def run_pass(self) -> None:
        """Merges small files of at most one segment of each topic."""
        self._update_candidates()
        for managed in list(self._topics.values()):
            if (entry := self._next_entry(managed)) is not None and managed.topic is not None:
                await self._run_guarded(managed, managed.topic, entry)

    def waiting(self, managed: ManagedTopic) -> int:
        """The number of its sealed segments with small files."""
        return len(self._entries(managed))

    # ---- what is to be merged

    def _entries(self, managed: ManagedTopic) -> list[SealedSegment]:
        """The segments whose file list, as the index names it, lists small files, oldest first."""
        if managed.topic is None or managed.deleted:
            return []
        listed = self._source.small_files(managed.topic.uid)
        entries = (managed.index.sealed.get(name) for name in listed)
        found = [it for it in entries if it is not None and it.file_list == listed[it.name]]
        return sorted(found, key=lambda it: it.number)

    def _update_candidates(self) -> None:
        """Adds the segments with small files, and forgets the others with their problems."""
        current = {}
        for managed in self._topics.values():
            for entry in self._entries(managed):
                assert managed.topic is not None
                at = managed.topic.uid, entry.name
                known = self._candidates.get(at)
                same = known is not None and known.file_list == entry.file_list
                current[at] = known if known and same else _Candidate(entry.file_list, self._now())
        for at, known in self._candidates.items():
            if current.get(at) is not known:
                self._clear(known)
        self._candidates = current

    def _next_entry(self, managed: ManagedTopic) -> SealedSegment | None:
        """The oldest segment whose turn it is."""
        now, uid = self._now(), managed.topic.uid if managed.topic is not None else ""
        for entry in self._entries(managed):
            known = self._candidates.get((uid, entry.name))
            # The earlier time counts, as the clock of the leader that sealed it may have been ahead.
            if known and now >= known.retry_at and now - min(entry.sealed_at, known.seen_at) >= self._after_us:
                return entry
        return None

    # ---- one segment

    async def _run_guarded(self, managed: ManagedTopic, topic: Topic, entry: SealedSegment) -> None:
        """Logs, counts or reports a failure. Other segments and topics are not affected."""
        candidate = self._candidates[topic.uid, entry.name]
        try:
            await self._merge_segment(managed, topic, entry)
            # If the index names another file list now, the segment is another candidate, or none.
            candidate.retry_at = self._now() + MAX_RETRY_AFTER_US
        except (CorruptChunk, CorruptDocument, DataLost) as error:
            self.failures += 1
            candidate.retry_at = self._now() + MAX_RETRY_AFTER_US
            self._report(candidate, topic, entry, error)
        except Exception as error:
            self.failures += 1
            candidate.failures += 1
            backoff = RETRY_AFTER_US << min(candidate.failures - 1, 16)
            candidate.retry_at = self._now() + min(backoff, MAX_RETRY_AFTER_US)
            if isinstance(error, SmqError):
                log.warning(
                    "small_files.merge_failed",
                    topic=topic.name,
                    segment=entry.name,
                    error=error.code,
                    message=error.message,
                )
            else:
                log.exception("small_files.merge_failed", topic=topic.name, segment=entry.name)

    async def _merge_segment(self, managed: ManagedTopic, topic: Topic, entry: SealedSegment) -> None:
        """Raises CorruptChunk, CorruptDocument, StoreUnavailable, and DataLost if a file is gone that is needed."""
        if await self._is_replaced(managed, topic, entry):
            return
        began, segment = self._now(), StoredSegment.of(topic.name, topic.uid, entry)
        try:
            file_list = await self._store.run(load_file_list, segment)
            if file_list is None:  # the namer, which reads it regularly, reports it unless the segment was removed
                return
            runs = plan_small_files(file_list, self._policy)[:MAX_RUNS_PER_SWITCH]
            if not runs:
                return
            merged: list[FileEntry] = []
            for run in runs:
                if not self._is_known(managed, topic, entry):
                    return
                merged += await self._merge_run(topic, segment, run)
            written, named = await self._store.run(_switch, segment, merged, self._store.retry_policy)
        except DataLost:
            if await self._is_replaced(managed, topic, entry):
                return
            raise
        self._file_list_named(managed, topic, entry, named)
        if named == written:
            files, size = sum(len(run.files) for run in runs), sum(run.bytes for run in runs)
            self.replaced_files += files
            self.replaced_bytes += size
            self.merged_files += len(merged)
            log.info(
                "small_files.merged",
                topic=topic.name,
                segment=entry.name,
                files=files,
                merged=len(merged),
                bytes=size,
                seconds=round((self._now() - began) / SECOND, 1),
            )

    def _is_known(self, managed: ManagedTopic, topic: Topic, entry: SealedSegment) -> bool:
        """Whether the topic was not deleted meanwhile, and this leader has not removed the segment."""
        is_managed = managed.topic is not None and managed.topic.uid == topic.uid and not managed.deleted
        known = managed.index.sealed.get(entry.name)
        return is_managed and known is not None and known.file_list == entry.file_list

    async def _is_replaced(self, managed: ManagedTopic, topic: Topic, entry: SealedSegment) -> bool:
        """Whether the index names another file list than this leader knows, or retention has removed the segment."""
        named = await self._store.run(_named_file_list, topic, entry.name)
        self._file_list_named(managed, topic, entry, named)
        return named != entry.file_list

    def _file_list_named(self, managed: ManagedTopic, topic: Topic, entry: SealedSegment, named: str | None) -> None:
        """Takes in what the index names now. Retention of another leader is left to this leader's own."""
        if named is not None and managed.topic is not None and managed.topic.uid == topic.uid:
            managed.index.name_file_lists({entry.name: named})

    async def _merge_run(self, topic: Topic, segment: StoredSegment, run: FileRun) -> list[FileEntry]:
        """Merges one run, and pauses. If this task is cancelled, the thread ends before its next request."""
        key = topic.spec.key if topic.spec.schema else "key"
        began, stop = self._now(), threading.Event()
        try:
            merged = await self._store.run(_merge, segment, run, key, stop)
        finally:
            stop.set()
        await asyncio.sleep((self._now() - began) / SECOND * PAUSE_FACTOR)
        return merged

    # ---- problems

    def _report(self, candidate: _Candidate, topic: Topic, entry: SealedSegment, error: _Damage) -> None:
        """The problem lasts until the segment has another file list, or retention has removed it."""
        if isinstance(error, DataLost):
            path = paths.chunk(topic.name, topic.uid, entry.name, error.start)
        else:
            path = error.path
        if candidate.unreadable != path:
            self._clear(candidate)
        candidate.unreadable = path
        message = f"{error.message}. The small files of {entry.name} are not merged until it is restored"
        self._problems.quarantine(path, message, topic.name)

    def _clear(self, candidate: _Candidate) -> None:
        if candidate.unreadable:
            self._problems.readable(candidate.unreadable)
            candidate.unreadable = ""


def _named_file_list(store: Store, topic: Topic, segment: str) -> str | None:
    """The file list that the index names for the segment, or None if retention has removed it."""
    entries = sealed_index.read(store, topic.name, topic.uid)
    return next((entry.file_list for entry in entries if entry.name == segment), None)


def _switch(
    store: Store, segment: StoredSegment, merged: list[FileEntry], retry_policy: RetryPolicy
) -> tuple[str, str | None]:
    """The file list that was written, and the one that the index names now; None if retention removed the segment."""
    written = write_next_file_list(store, segment, merged, uuid.uuid4().hex, retry_policy)
    swaps = {segment.name: (segment.file_list, written)}
    named = sealed_index.name_file_lists(store, segment.topic, segment.uid, swaps, retry_policy)
    return written, named.get(segment.name)


def _merge(
    store: Store, segment: StoredSegment, run: FileRun, key: str | None, stop: threading.Event
) -> list[FileEntry]:
    try:
        return merge_run(store, segment, run, key, lambda: uuid.uuid4().hex, LIMITS, stop.is_set)
    finally:
        pa.default_memory_pool().release_unused()
