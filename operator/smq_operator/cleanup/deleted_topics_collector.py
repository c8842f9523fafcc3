"""Removes the data of deleted topics, also of those that were deleted while no leader was running."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from smq_core.model.entities import SECOND, Topic
from smq_operator.brokers.registry import BrokerRegistry
from smq_operator.cleanup.deleted_topics import LiveTopics, collect_deleted_topics, record_vanished_topics
from smq_operator.cleanup.document_scan import DocumentQuarantine, DocumentScan
from smq_operator.cleanup.filer_clock import FilerClock
from smq_operator.cleanup.reported_segments import hosted_uids
from smq_operator.platform_port import Platform
from smq_operator.reconcile.topics.adoption import record_deletion
from smq_operator.reconcile.topics.directory import TopicDirectory
from smq_operator.runtime.cleanup_settings import CleanupSettings
from smq_operator.runtime.clock import Clock
from smq_operator.runtime.problems import LeaderProblems
from smq_operator.runtime.store_pool import StorePool

log = structlog.get_logger(__name__)

# When a new leader first looks for topics deleted without a leader: their segments still accept messages.
FIRST_CHECK_US = 15 * SECOND


class DeletedTopicsCollector:
    """See the module's docstring. Use it on the event loop. ``deleted_files`` is for the metrics."""

    def __init__(
        self,
        *,
        topics: TopicDirectory,
        registry: BrokerRegistry,
        platform: Platform,
        store: StorePool,
        problems: LeaderProblems,
        clock: Clock,
        filer_clock: FilerClock,
        owner: Callable[[], str],
        settings: CleanupSettings,
    ) -> None:
        self._topics = topics
        self._registry = registry
        self._platform = platform
        self._store = store
        self._now = clock
        self._filer_clock = filer_clock
        self._owner = owner
        self._settings = settings
        self._retained_uids: set[str] = set()
        self._vanished_quarantine = DocumentQuarantine(
            problems, clock, "the leader does not find out whether the topic was deleted"
        )
        self._deleted_quarantine = DocumentQuarantine(problems, clock, "the data of this deleted topic is not deleted")
        self._next_deletion_check_at = 0
        self._next_vanished_check_at = 0
        self.deleted_files = 0

    def start(self) -> None:
        """Nothing is looked for at once: a new leader does not know all topics and brokers yet."""
        now = self._now()
        self._next_deletion_check_at = now + self._settings.retention_interval_us
        self._next_vanished_check_at = now + min(self._settings.orphan_check_interval_us, FIRST_CHECK_US)

    async def record(self, topic: Topic) -> None:
        """Records the deletion in the filer, so that any later leader continues it."""
        now = self._now()
        try:
            await self._store.run(record_deletion, topic.name, topic.uid, self._store.retry_policy, now)
        except Exception:
            # The topic is not managed any more, so only a look at all topics of the filer finds it again.
            self._next_vanished_check_at = min(self._next_vanished_check_at, now + FIRST_CHECK_US)
            raise

    def look_for_vanished(self) -> None:
        """A topic was deleted of which this leader knows no uid; the filer may have it from earlier leaders."""
        self._next_vanished_check_at = self._now()

    async def collect(self) -> int:
        """Does what is due now, and returns how many looks did not see all topics. Raises SmqError."""
        now, failures = self._now(), 0
        if now >= self._next_vanished_check_at:
            self._next_vanished_check_at = again = (
                now + self._settings.retention_interval_us
            )  # sooner, in case the filer does not answer
            scan = await self._record_vanished(now)
            failures += bool(scan.unavailable)
            if (
                self._vanished_quarantine.update(scan) and self._next_vanished_check_at == again
            ):  # no topic was deleted meanwhile
                self._next_vanished_check_at = now + self._settings.orphan_check_interval_us
        if now >= self._next_deletion_check_at:
            self._next_deletion_check_at = now + self._settings.retention_interval_us
            scan = await self._delete_data()
            failures += bool(scan.unavailable)
            self._deleted_quarantine.update(scan)
        return failures

    async def _record_vanished(self, now: int) -> DocumentScan:
        scan = DocumentScan()
        for name in await self._store.run(
            record_vanished_topics, self._live_topics(), self._owner(), now, self._store.retry_policy, scan
        ):
            log.info("topic.deletion_discovered", topic=name, message="deleted while no leader was running")
        return scan

    async def _delete_data(self) -> DocumentScan:
        grace_us, scan = self._settings.deleted_topics_grace_us, DocumentScan()
        clocks = await self._filer_clock.read()  # before the topics that live, as this process may be paused
        for it in await self._store.run(
            collect_deleted_topics,
            self._live_topics(),
            grace_us,
            clocks,
            self._store.retry_policy,
            self._retained_uids,
            scan,
        ):
            self.deleted_files += it.files
            log.info(
                "deleted_topic.data_deleted",
                topic=it.topic,
                uid=it.uid,
                files=it.files,
                reason="the topic was deleted with deletionPolicy Delete",
            )
        return scan

    def _live_topics(self) -> LiveTopics:
        managed_topics = self._topics.values()
        uids = {managed.topic.uid for managed in managed_topics if managed.topic is not None}
        uids |= {managed.desired.uid for managed in managed_topics if managed.desired.uid is not None}
        complete = self._topics.synced and not self._platform.problems()
        return LiveTopics(uids, set(self._topics), hosted_uids(self._registry), complete=complete)
