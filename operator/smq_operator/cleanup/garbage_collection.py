"""Removes data that is no longer wanted: by retention, of deleted topics, superseded chunks, and orphaned files.

It runs beside the reconcile loop and is level-triggered: the filer says what is to be removed, so no state has to
survive a leader. It does one thing at a time, so that it does not delay what users wait for.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

import structlog

from smq_core.errors import CorruptChunk, CorruptDocument, SmqError
from smq_core.model.decision import Decision, DecisionAction
from smq_core.model.entities import SECOND, Topic
from smq_core.reconcile.kafka_retention import KafkaGroupProgress
from smq_core.reconcile.retention import GroupProgress, Removal, plan_retention
from smq_operator.brokers.registry import BrokerRegistry
from smq_operator.cleanup.deleted_topics_collector import DeletedTopicsCollector
from smq_operator.cleanup.filer_clock import SKEW_TOLERANCE_US, ClockReading, FilerClock
from smq_operator.cleanup.kafka_retention import KafkaReaders
from smq_operator.cleanup.kafka_silence import KafkaSilence
from smq_operator.cleanup.orphaned_files import collect_orphaned_files
from smq_operator.cleanup.reader_pins import PinnedFiles, end_expired_pins
from smq_operator.cleanup.reported_segments import date, hosted_segments, started_segments, written_uploads
from smq_operator.cleanup.retention import (
    ConsistentState,
    IsHeld,
    age_of_removal,
    delete_files,
    read_consistent,
    remove_expired,
)
from smq_operator.cleanup.superseded_chunks import SupersededChunksCollector
from smq_operator.cleanup.trim import Trim, TrimRequest, trim_topic
from smq_operator.cleanup.unreferenced_uploads import (
    HostedSegment,
    KeptUploads,
    WrittenUploads,
    collect_unreferenced_uploads,
)
from smq_operator.platform_port import Platform
from smq_operator.reconcile.decision_log import DecisionLog
from smq_operator.reconcile.topics.directory import TopicDirectory
from smq_operator.reconcile.topics.managed_topic import ManagedTopic
from smq_operator.reconcile.topics.topic_events import TopicEvents
from smq_operator.reconcile.work_queue import WorkQueue
from smq_operator.runtime.cleanup_settings import CleanupSettings
from smq_operator.runtime.clock import Clock
from smq_operator.runtime.store_pool import StorePool
from smq_operator.runtime.task_runner import TaskRunner

log = structlog.get_logger(__name__)

TICK_SECONDS = 0.5
PIN_CHECK_INTERVAL_US = 60 * SECOND
# The number of segments that the reason of a decision names.
MAX_NAMED_SEGMENTS = 5


class GroupStates(Protocol):
    """Reads the progress of consumer groups for retention."""

    async def states(self, managed: ManagedTopic, topic: Topic) -> list[GroupProgress]: ...


class KafkaGroupStates(Protocol):
    """Reads how far groups of Kafka clients have read a topic."""

    async def progress(
        self, topic: Topic, clocks: ClockReading, *, can_be_inactive: bool
    ) -> list[KafkaGroupProgress]: ...


class GarbageCollector:
    """See the module's docstring. Use it on the event loop; its counters are for the metrics."""

    def __init__(
        self,
        *,
        topics: TopicDirectory,
        events: TopicEvents,
        registry: BrokerRegistry,
        platform: Platform,
        groups: GroupStates,
        kafka_groups: KafkaGroupStates,
        kafka_silence: KafkaSilence,
        store: StorePool,
        decisions: DecisionLog,
        queue: WorkQueue,
        tasks: TaskRunner,
        clock: Clock,
        filer_clock: FilerClock,
        owner: Callable[[], str],
        settings: CleanupSettings,
        kept_uploads: Sequence[KeptUploads] = (),
        is_held: IsHeld = lambda store, topic, retry_policy: False,
    ) -> None:
        self._topics = topics
        self._registry = registry
        self._groups = groups
        self._kafka_groups = kafka_groups
        self._kafka_silence = kafka_silence
        self._kafka_readers: dict[str, KafkaReaders] = {}
        """By uid of the topic, with what was read of the segments that they hold."""
        self._store = store
        self._decisions = decisions
        self._queue = queue
        self._tasks = tasks
        self._now = clock
        self._filer_clock = filer_clock
        self._settings = settings
        self._kept_uploads = kept_uploads
        self._is_held = is_held
        self._removing = asyncio.Lock()
        """Of retention and trims, which count what they remove."""
        self._trims: set[asyncio.Task[Trim]] = set()
        self._retention_checked: dict[str, tuple[int, int]] = {}
        self._next_orphan_check_at: dict[str, int] = {}
        self._next_uploads_check_at: dict[str, int] = {}
        self._next_pin_check_at: dict[str, int] = {}
        self._reported_folders: set[tuple[str, str]] = set()
        self._unreadable: dict[str, str] = {}
        """By topic: the path of what its last pass could not read."""
        self._deleted = DeletedTopicsCollector(
            topics=topics,
            registry=registry,
            platform=platform,
            store=store,
            problems=tasks.problems,
            clock=clock,
            filer_clock=filer_clock,
            owner=owner,
            settings=settings,
        )
        self.removed: Counter[str] = Counter()
        self.removed_bytes: Counter[str] = Counter()
        self.files: Counter[str] = Counter()
        self.pinned: dict[str, PinnedFiles] = {}
        """The readers' pins by topic, as they were at the last check."""
        self.failures = 0
        self._superseded = SupersededChunksCollector(
            store=store,
            filer_clock=self._filer_clock,
            clock=clock,
            settings=settings,
            problems=tasks.problems,
            is_held=is_held,
        )
        events.on_deleted(self._on_topic_deleted)

    async def run(self) -> None:
        """Runs until it is cancelled."""
        self._deleted.start()
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self._kafka_silence.observe(self._now())
            await self._run_guarded("", self._compare_clocks)
            for managed in list(self._topics.values()):
                if managed.topic is not None and managed.layout is not None and not managed.deleted:
                    await self._run_guarded(managed.name, self._collect_topic, managed, managed.topic)
            await self._run_guarded("", self._collect_deleted_topics)

    async def _run_guarded(self, topic: str, work: Callable[..., Awaitable[None]], *args: object) -> None:
        """Logs and counts a failure. The next pass tries again, and other topics are not affected."""
        try:
            await work(*args)
            if (path := self._unreadable.pop(topic, None)) is not None:
                self._tasks.problems.readable(path)
        except (CorruptDocument, CorruptChunk) as error:
            self.failures += 1
            self._unreadable[topic] = error.path
            message = f"{error.message}. Retention and cleanup of the topic stop until the file is restored"
            self._tasks.problems.quarantine(error.path, message, topic)
        except SmqError as error:
            self.failures += 1
            log.warning("garbage_collection.failed", topic=topic, error=error.code, message=error.message)
        except Exception:
            self.failures += 1
            log.exception("garbage_collection.failed", topic=topic)

    async def _compare_clocks(self) -> None:
        """Says at every topic how far the leader's clock is off; it is measured even if nothing is to be removed."""
        skew_us = (await self._filer_clock.read()).skew_us
        for managed in self._topics.values():
            managed.clock_skew_us = skew_us if abs(skew_us) > SKEW_TOLERANCE_US else 0

    async def trim(self, managed: ManagedTopic, topic: Topic, request: TrimRequest) -> Trim:
        """Removes segments that were sealed before a time. Raises Unavailable, CorruptDocument.

        A client that stops waiting ends nothing: what is removed from the index is removed from the leader's copy too.
        """
        trimming = asyncio.ensure_future(self._trim(managed, topic, request))
        self._trims.add(trimming)
        trimming.add_done_callback(self._trims.discard)
        return await asyncio.shield(trimming)

    async def _trim(self, managed: ManagedTopic, topic: Topic, request: TrimRequest) -> Trim:
        async with self._removing:
            clocks, known, groups = await self._read_state(managed, topic)
            readers = await self._read_readers(topic, clocks)
            started = started_segments(self._registry, topic.uid)
            policy, is_held = self._store.retry_policy, self._is_held
            found = await self._store.run(
                trim_topic, topic, request, known, groups, started, clocks, policy, is_held, readers
            )
            if not request.preview and managed.topic is not None and managed.topic.uid == topic.uid:
                self._record_removals(managed, topic, found.removals, clocks.leader, DecisionAction.TRIM)
        return found

    # ---- one topic

    async def _collect_topic(self, managed: ManagedTopic, topic: Topic) -> None:
        now = self._now()
        checked_at, changes = self._retention_checked.get(topic.uid, (0, -1))
        if now - checked_at >= self._settings.retention_interval_us or changes != managed.index.changes:
            async with self._removing:
                await self._apply_retention(managed, topic)
            self._retention_checked[topic.uid] = (self._now(), managed.index.changes)
        await self._superseded.collect(managed, topic, lambda: hosted_segments(self._registry, topic.uid))
        self.files["superseded"] = self._superseded.deleted_files
        if now >= self._next_pin_check_at.get(topic.uid, 0):
            self._next_pin_check_at[topic.uid] = now + PIN_CHECK_INTERVAL_US
            await self._check_pins(topic)
        orphan_check_at = self._next_orphan_check_at.setdefault(
            topic.uid, now + self._settings.orphan_check_interval_us
        )
        if now >= orphan_check_at:
            self._next_orphan_check_at[topic.uid] = now + self._settings.orphan_check_interval_us
            await self._collect_orphans(managed, topic)
        if now >= self._next_uploads_check_at.setdefault(topic.uid, now + self._settings.orphan_check_interval_us):
            clocks = await self._filer_clock.read()
            written = written_uploads(self._registry, topic.uid, clocks)
            if managed.layout is not None and all(
                (it.primary.incarnation, it.name) in written for it in managed.layout.segments
            ):
                self._next_uploads_check_at[topic.uid] = now + self._settings.orphan_check_interval_us
                await self._collect_uploads(topic, clocks, written)

    async def _apply_retention(self, managed: ManagedTopic, topic: Topic) -> None:
        now = self._now()
        # The known index decides whether the filer is read at all; what the filer has decides what is removed.
        if plan_retention(topic.spec, list(managed.index.sealed.values()), [], now).removals:
            clocks, known, groups = await self._read_state(managed, topic)
            readers = await self._read_readers(topic, clocks) if topic.spec.retention_keeps_unread else None
            started = started_segments(self._registry, topic.uid)
            policy, is_held = self._store.retry_policy, self._is_held
            verdict = await self._store.run(
                remove_expired, topic, known, groups, started, clocks, policy, is_held, readers
            )
            if managed.topic is not None and managed.topic.uid == topic.uid:
                self._record_held(managed, topic, verdict.retained)
                self._record_removals(managed, topic, verdict.removals, clocks.leader, DecisionAction.RETENTION)
        else:
            managed.retention_held = {}
            self._kafka_readers.pop(topic.uid, None)
        clocks, grace_us = await self._filer_clock.read(), self._settings.removed_files_grace_us
        removed = managed.index.removed_segments.values()
        if any(segment.files and age_of_removal(segment, clocks) >= grace_us for segment in removed):
            done, count = await self._store.run(delete_files, topic, clocks, self._settings, self._store.retry_policy)
            managed.index.mark_files_deleted([segment.name for segment in done])
            self.files["removed"] += count
            if done:
                log.info("retention.files_deleted", topic=topic.name, segments=[it.name for it in done], files=count)

    async def _read_state(
        self, managed: ManagedTopic, topic: Topic
    ) -> tuple[ClockReading, ConsistentState | None, list[GroupProgress]]:
        """What says which segments have expired, and after it the groups that may still have to read them.

        This process may be paused in between. A group that begins during a pause is unknown to it if it read the groups
        before. So nothing that expires during the pause may be removed.
        """
        clocks = await self._filer_clock.read()
        known = await self._store.run(read_consistent, topic)
        return clocks, known, await self._groups.states(managed, topic)

    async def _read_readers(self, topic: Topic, clocks: ClockReading) -> KafkaReaders | None:
        """Groups of Kafka clients; None if they cannot read the topic. As other groups, they are read after the index.

        Raises StoreUnavailable.
        """
        if not topic.spec.has_kafka_offsets:
            return None
        can_be_inactive = self._kafka_silence.counts(clocks)
        groups = await self._kafka_groups.progress(topic, clocks, can_be_inactive=can_be_inactive)
        readers = self._kafka_readers.setdefault(topic.uid, KafkaReaders(()))
        readers.groups = groups
        return readers

    async def _check_pins(self, topic: Topic) -> None:
        """Ends expired pins also while there is nothing to delete, and counts the others for the metrics."""
        clocks, max_age_us = await self._filer_clock.read(), self._settings.max_pin_age_us
        self.pinned[topic.name] = await self._store.run(
            end_expired_pins, topic, clocks, max_age_us, self._store.retry_policy
        )

    def _record_held(self, managed: ManagedTopic, topic: Topic, retained: Mapping[str, list[str]]) -> None:
        if retained.keys() != managed.retention_held.keys():
            groups = sorted({group for names in retained.values() for group in names})
            log.info("retention.blocked", topic=topic.name, segments=len(retained), groups=groups)
        managed.retention_held = retained

    def _record_removals(
        self, managed: ManagedTopic, topic: Topic, removals: Sequence[Removal], now: int, action: DecisionAction
    ) -> None:
        reasons: dict[str, list[Removal]] = {}
        for removal in removals:
            reasons.setdefault(removal.because, []).append(removal)
            self.removed[topic.name] += 1
            self.removed_bytes[topic.name] += removal.segment.bytes
            if removal.unread or removal.kafka_unread:
                log.warning(
                    "retention.unread_removed",
                    topic=topic.name,
                    segment=removal.segment.name,
                    end=removal.segment.end,
                    groups=dict(removal.unread),
                    kafka_groups=dict(removal.kafka_unread),
                )
        for because, alike in reasons.items():
            names = tuple(removal.segment.name for removal in alike)
            self._decisions.record(Decision(at=now, topic=topic.name, action=action, segments=names, reason=because))
        if removals:
            managed.index.remove(removals, now)
            self._queue.enqueue(managed)

    async def _collect_orphans(self, managed: ManagedTopic, topic: Topic) -> None:
        changes = managed.index.changes
        before = date((await self._filer_clock.read()).earliest - self._settings.orphan_grace_us)
        found = await self._store.run(collect_orphaned_files, topic, before)
        if managed.topic is not None and managed.topic.uid == topic.uid and managed.index.changes == changes:
            managed.index.name_file_lists(found.named)  # also those of other processes' compactions
        for segment, count in found.deleted.items():
            self.files["orphan"] += count
            log.warning(
                "orphaned_files.deleted",
                topic=topic.name,
                segment=segment,
                files=count,
                reason="retention removed the segment",
            )
        if found.file_lists:
            self.files["file_list"] += found.file_lists
            log.info("orphaned_file_lists.deleted", topic=topic.name, files=found.file_lists)
        for name in found.unknown:
            if (topic.uid, name) not in self._reported_folders:
                self._reported_folders.add((topic.uid, name))
                log.warning("unknown_folder.found", topic=topic.name, uid=topic.uid, folder=name, advice="not touched")

    async def _collect_uploads(
        self, topic: Topic, clocks: ClockReading, written: Mapping[HostedSegment, WrittenUploads]
    ) -> None:
        before = date(clocks.earliest - self._settings.uploads_grace_us)
        count = await self._store.run(collect_unreferenced_uploads, topic, before, written, self._kept_uploads)
        if count:
            self.files["upload"] += count
            log.info("uploads.deleted", topic=topic.name, files=count, reason="old, and no chunk refers to them")

    # ---- deleted topics

    def _on_topic_deleted(self, managed: ManagedTopic) -> None:
        if managed.topic is not None:
            self._kafka_readers.pop(managed.topic.uid, None)
            self._tasks.spawn(self._run_guarded(managed.name, self._deleted.record, managed.topic))
        else:
            self._deleted.look_for_vanished()

    async def _collect_deleted_topics(self) -> None:
        self.failures += await self._deleted.collect()
        self.files["deleted_topic"] = self._deleted.deleted_files
