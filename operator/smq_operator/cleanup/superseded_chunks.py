"""Deletes the chunks of sealed segments whose rows are in merged files, when no reader can need them any more.

The index says for each segment since when its chunks are superseded, and whether they are deleted already. So a topic
without any costs no request, and every later leader goes on where the last one ended:

* A leader that finds a file list of a later version in the index writes down both clocks' time. It reads the clocks
  after the index. So a reader that plans later than that does not use the superseded chunks.
* They stay for ``--superseded-files-grace`` after that, by the clock that says less, and while a reader's pin that is
  older than the record is alive.
* They stay while a broker hosts the segment, because it may not know yet that it is sealed, while the layout has it,
  and while an atomic publish is unfinished.
* ``smq_storage/compaction/superseded_files.py`` checks the merged files, and deletes. What it finds wrong is reported,
  and that segment is tried again an hour later.

What decides is read from the filer, so a leader that was replaced without noticing does no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace

import structlog

from smq_core.errors import CorruptChunk, CorruptDocument, DataLost
from smq_core.file_lists.superseded_rules import CleanupStep, next_step
from smq_core.model.entities import SECOND, SealedSegment, Topic
from smq_core.model.superseded_chunks import SupersededChunks
from smq_operator.cleanup.filer_clock import ClockReading, FilerClock
from smq_operator.cleanup.reader_pins import end_expired_pins
from smq_operator.cleanup.retention import read_consistent
from smq_operator.reconcile.topics.managed_topic import ManagedTopic
from smq_operator.runtime.cleanup_settings import CleanupSettings
from smq_operator.runtime.clock import Clock
from smq_operator.runtime.problems import LeaderProblems
from smq_operator.runtime.store_pool import StorePool
from smq_storage.catalog import paths, sealed_index
from smq_storage.compaction.superseded_files import MAX_CHUNKS_PER_CALL, DeletedChunks, delete_superseded
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import Store
from smq_storage.tables.segment_files import StoredSegment

log = structlog.get_logger(__name__)

# The time after which a segment whose files are not as they should be is tried again.
RETRY_AFTER_US = 3600 * SECOND
# The intervals of retention after which what a pin, a broker or a publish keeps is checked again: a minute.
CHECK_AGAIN_INTERVALS = 6

_Damage = CorruptChunk | CorruptDocument | DataLost


@dataclass(slots=True)
class PassResult:
    """``entries``: as the index has them now. ``deleted`` and ``damaged`` are by segment."""

    entries: list[SealedSegment] = field(default_factory=list)
    deleted: dict[str, DeletedChunks] = field(default_factory=dict)
    damaged: dict[str, _Damage] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Damaged:
    """A segment that was not as it should be: its file list then, what was reported, when it is tried again."""

    file_list: str
    path: str
    retry_at: int


class SupersededChunksCollector:
    """See the module's docstring. Use it on the event loop; its counter is for the metrics."""

    def __init__(
        self,
        *,
        store: StorePool,
        filer_clock: FilerClock,
        clock: Clock,
        settings: CleanupSettings,
        problems: LeaderProblems,
        is_held: Callable[[Store, Topic, RetryPolicy], bool],
    ) -> None:
        self._store = store
        self._filer_clock = filer_clock
        self._now = clock
        self._settings = settings
        self._problems = problems
        self._is_held = is_held
        self._next_pass_at: dict[str, int] = {}
        """By uid."""
        self._damaged: dict[str, dict[str, _Damaged]] = {}
        """By uid and segment."""
        self.deleted_files = 0

    async def collect(self, managed: ManagedTopic, topic: Topic, hosted: Callable[[], Collection[str]]) -> None:
        """One pass, if the known index says that there is something to do. ``hosted``: the segments that brokers have.

        Raises CorruptDocument (index or layout), StoreUnavailable.
        """
        now = self._now()
        if now < self._next_pass_at.get(topic.uid, 0):
            return
        self._next_pass_at[topic.uid] = now + self._settings.retention_interval_us
        skipped = self._skipped(topic, managed.index.sealed.values(), now)
        grace_us = self._settings.superseded_files_grace_us
        known = [it for it in managed.index.sealed.values() if it.name not in skipped]
        if not steps_of(known, await self._filer_clock.read(), grace_us):
            return
        self._next_pass_at[topic.uid] = now + CHECK_AGAIN_INTERVALS * self._settings.retention_interval_us
        changes = managed.index.changes
        entries = await self._store.run(_living_entries, topic)
        clocks = await self._filer_clock.read()  # after the index
        entries = [it for it in entries if it.name not in skipped]
        result = await self._store.run(
            run_pass, topic, entries, hosted(), clocks, self._settings, self._store.retry_policy, self._is_held
        )
        if managed.topic is not None and managed.topic.uid == topic.uid:
            if managed.index.changes == changes:
                managed.index.name_file_lists({it.name: it.file_list for it in entries})
            managed.index.record_superseded([*entries, *result.entries])
        self._report(topic, result, {it.name: it.file_list for it in entries})
        if result.entries or result.deleted:
            self._next_pass_at[topic.uid] = self._now() + self._settings.retention_interval_us

    def _skipped(self, topic: Topic, entries: Iterable[SealedSegment], now: int) -> set[str]:
        """The segments that are not tried again yet. Forgets those that have another file list now, or are removed."""
        damaged = self._damaged.get(topic.uid, {})
        named = {it.name: it.file_list for it in entries if it.superseded is None or not it.superseded.deleted}
        for name, found in list(damaged.items()):
            if named.get(name) != found.file_list:
                self._clear(topic, found)
                del damaged[name]
        return {name for name, found in damaged.items() if now < found.retry_at}

    def _clear(self, topic: Topic, found: _Damaged) -> None:
        if not _is_file_list(topic, found):
            self._problems.readable(found.path)

    def _report(self, topic: Topic, result: PassResult, file_lists: dict[str, str]) -> None:
        damaged = self._damaged.setdefault(topic.uid, {})
        for name, done in result.deleted.items():
            if (found := damaged.pop(name, None)) is not None:
                self._clear(topic, found)
            self.deleted_files += done.chunks + done.files
            if done.chunks or done.files or done.replaced:
                log.info(
                    "superseded_chunks.deleted",
                    topic=topic.name,
                    segment=name,
                    files=done.chunks + done.files,
                    replaced=done.replaced,
                    complete=done.complete,
                )
        for name, error in result.damaged.items():
            path = error.path or paths.segment_folder(topic.name, topic.uid, name)
            if (found := damaged.get(name)) is not None and found.path != path:
                self._clear(topic, found)
            damaged[name] = _Damaged(file_lists[name], path, self._now() + RETRY_AFTER_US)
            log.warning("superseded_chunks.kept", topic=topic.name, segment=name, message=error.message)
            if not _is_file_list(topic, damaged[name]):
                message = f"{error.message}. The chunks of {name} that merged files replace stay until it is restored"
                self._problems.quarantine(path, message, topic.name)


def _is_file_list(topic: Topic, found: _Damaged) -> bool:
    """Whether the segment's file list is what is wrong. The namer, which reads it regularly, reports it."""
    return found.path == paths.file_list(topic.name, topic.uid, found.file_list)


def steps_of(entries: Iterable[SealedSegment], clocks: ClockReading, grace_us: int | None) -> dict[str, CleanupStep]:
    """What is to be done now, by segment."""
    found: dict[str, CleanupStep] = {}
    for entry in entries:
        record = entry.superseded
        age = clocks.age(record.since, record.filer_since) if record is not None else 0
        step = next_step(entry, paths.file_list_version(entry.file_list) or 0, age, grace_us)
        if step in (CleanupStep.RECORD, CleanupStep.DELETE):
            found[entry.name] = step
    return found


def run_pass(
    store: Store,
    topic: Topic,
    entries: Collection[SealedSegment],
    hosted: Collection[str],
    clocks: ClockReading,
    settings: CleanupSettings,
    retry_policy: RetryPolicy,
    is_held: Callable[[Store, Topic, RetryPolicy], bool] = lambda store, topic, retry_policy: False,
) -> PassResult:
    """Records, and deletes what is due. ``entries`` were read from the index before ``clocks``. Blocks on the store.

    Raises StoreUnavailable; some chunks may be deleted then, and the next pass deletes the rest.
    """
    steps, by_name = steps_of(entries, clocks, settings.superseded_files_grace_us), {it.name: it for it in entries}
    result, records = PassResult(), dict[str, SupersededChunks]()
    for name, step in steps.items():
        if step is CleanupStep.RECORD:
            records[name] = SupersededChunks(by_name[name].file_list, clocks.leader, clocks.latest_filer)
    due = [by_name[name] for name, step in steps.items() if step is CleanupStep.DELETE and name not in hosted]
    if due and not is_held(store, topic, retry_policy):
        for entry in _unpinned(store, topic, due, clocks, settings, retry_policy):
            left = MAX_CHUNKS_PER_CALL - sum(it.chunks for it in result.deleted.values())
            if left <= 0:
                break
            try:
                done = delete_superseded(store, StoredSegment.of(topic.name, topic.uid, entry), retry_policy, left)
            except (CorruptChunk, CorruptDocument, DataLost) as error:
                result.damaged[entry.name] = error
                continue
            result.deleted[entry.name] = done
            if done.complete and entry.superseded is not None:
                records[entry.name] = replace(entry.superseded, deleted=True)
    if records:
        result.entries = sealed_index.record_superseded(store, topic.name, topic.uid, records, retry_policy)
    return result


def _living_entries(store: Store, topic: Topic) -> list[SealedSegment]:
    """The entries of the index that have left the layout; none if index and layout do not match."""
    known = read_consistent(store, topic)
    return [] if known is None else [it for it in known.index.entries if it.name not in known.layout]


def _unpinned(
    store: Store,
    topic: Topic,
    due: list[SealedSegment],
    clocks: ClockReading,
    settings: CleanupSettings,
    retry_policy: RetryPolicy,
) -> list[SealedSegment]:
    """Those whose superseded chunks no living pin may need."""
    pinned = end_expired_pins(store, topic, clocks, settings.max_pin_age_us, retry_policy)
    return [
        it
        for it in due
        if it.superseded is not None and not pinned.needs_superseded(it.number, it.superseded.filer_since)
    ]
