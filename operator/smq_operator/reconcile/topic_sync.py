"""Follows the desired topics of the platform: adopts new and changed ones, and drops deleted ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import structlog

from smq_core.errors import CorruptDocument, SmqError, StoreUnavailable
from smq_core.model.decision import Decision, DecisionAction
from smq_core.model.entities import SECOND
from smq_operator.platform_port import DesiredTopic, Platform
from smq_operator.reconcile.broker_assignments import BrokerAssignments
from smq_operator.reconcile.decision_log import DecisionLog
from smq_operator.reconcile.topics import adoption
from smq_operator.reconcile.topics.directory import TopicDirectory
from smq_operator.reconcile.topics.managed_topic import ManagedTopic
from smq_operator.reconcile.topics.topic_events import TopicEvents
from smq_operator.reconcile.warm_up import WarmUp
from smq_operator.reconcile.work_queue import WorkQueue
from smq_operator.runtime.clock import Clock
from smq_operator.runtime.store_pool import StorePool
from smq_operator.runtime.task_runner import TaskRunner

log = structlog.get_logger(__name__)

RETRY_INTERVAL_US = 1_000_000


class TopicSync:
    """``owner`` returns the name of this platform, which is written into the topics that it owns."""

    def __init__(
        self,
        *,
        platform: Platform,
        topics: TopicDirectory,
        assignments: BrokerAssignments,
        decisions: DecisionLog,
        events: TopicEvents,
        queue: WorkQueue,
        tasks: TaskRunner,
        store: StorePool,
        warm_up: WarmUp,
        clock: Clock,
        owner: Callable[[], str],
    ) -> None:
        self._platform = platform
        self._topics = topics
        self._assignments = assignments
        self._decisions = decisions
        self._events = events
        self._queue = queue
        self._tasks = tasks
        self._store = store
        self._warm_up = warm_up
        self._now = clock
        self._owner = owner
        self._synced_at = -SECOND
        self._adoption_pending = True
        """Whether the desired state of some topic was not adopted yet."""

    def is_due(self, now: int) -> bool:
        return self._adoption_pending or now - self._synced_at >= SECOND

    def sync(self) -> None:
        """Takes in which topics are desired now."""
        desired_topics, now = self._platform.desired_topics(), self._now()
        self._topics.synced, self._synced_at, self._adoption_pending = True, now, False
        for name in [name for name in self._topics if name not in desired_topics]:
            self._drop(self._topics.pop(name))
        for name, desired in desired_topics.items():
            managed = self._topics.setdefault(name, ManagedTopic(desired))
            self._apply_pause(managed, desired, now)
            managed.desired = desired
            if managed.last_adopted is desired or managed.last_adopted == desired:
                continue
            self._adoption_pending = True
            if not managed.adopting and now >= managed.retry_at:
                self._tasks.spawn(self._adopt(managed, desired), partial(self._queue.enqueue, managed))
                managed.adopting = True

    def restart(self, managed: ManagedTopic, problem: str) -> None:
        """Reconciles the topic anew, from what the filer has, after a short while. ``problem`` is shown until then."""
        managed.reconciler, managed.retry_at = None, self._now() + RETRY_INTERVAL_US
        managed.last_adopted = None
        self._adoption_pending = True
        managed.problem = problem
        self._assignments.account(managed)

    async def adopted(self, name: str, timeout: float = 5.0) -> ManagedTopic:
        """The topic, when its desired state has been adopted. Raises UnknownTopic, StoreUnavailable."""
        self.sync()
        try:
            async with asyncio.timeout(timeout):
                while True:
                    managed = self._topics.topic(name)
                    if managed.last_adopted == managed.desired:
                        return managed
                    await managed.wait_for_change()
        except TimeoutError:
            why = self._topics.topic(name).problem or "the filer does not respond"
            raise StoreUnavailable(
                f"topic {name} is accepted but not created yet: {why}. The leader keeps trying"
            ) from None

    # ---- one topic

    def _drop(self, managed: ManagedTopic) -> None:
        managed.deleted = True
        managed.clear_quarantine(self._tasks.problems)
        self._assignments.account(managed)
        self._assignments.layouts_changed()
        self._events.changed(managed)
        log.info("topic.deleted", topic=managed.name)
        if not managed.adopting:
            self._events.deleted(managed)

    def _apply_pause(self, managed: ManagedTopic, desired: DesiredTopic, now: int) -> None:
        """A pause needs no adoption, because the filer does not have it."""
        if managed.desired.paused != desired.paused:
            words = "is" if desired.paused else "is no more"
            action = DecisionAction.PAUSE_SCALING if desired.paused else DecisionAction.RESUME_SCALING
            self._decisions.record(
                Decision(at=now, topic=managed.name, action=action, segments=(), reason=f"autoscaling {words} paused")
            )
            if managed.last_adopted is not None:
                managed.last_adopted = replace(managed.last_adopted, paused=desired.paused)
        if managed.reconciler is not None and managed.reconciler.load.paused != desired.paused:
            managed.reconciler.load.paused, managed.due = desired.paused, True

    async def _adopt(self, managed: ManagedTopic, desired: DesiredTopic) -> None:
        try:
            adopted = await self._store.run(
                adoption.adopt, desired, self._store.retry_policy, self._now(), self._owner()
            )
        except Exception as error:
            managed.retry_at = self._now() + RETRY_INTERVAL_US
            managed.problem = error.message if isinstance(error, SmqError) else f"unexpected: {error}"
            log.warning("topic.adoption_failed", topic=desired.name, message=managed.problem)
            if isinstance(error, CorruptDocument):
                managed.quarantine(error, self._tasks.problems)
        else:
            try:
                self._apply_adopted(managed, desired, adopted)
            except Exception as error:
                log.exception("topic.adoption_failed", topic=desired.name)
                self.restart(managed, f"unexpected: {error}")
        finally:
            managed.adopting = False
        if managed.deleted:  # while it was adopted: the uid that was just written has to be retired
            self._events.deleted(managed)

    def _apply_adopted(self, managed: ManagedTopic, desired: DesiredTopic, adopted: adoption.AdoptedTopic) -> None:
        """The filer has the topic as ``adopted`` says."""
        managed.clear_quarantine(self._tasks.problems)
        if managed.deleted:
            managed.topic = adopted.topic
            return
        managed.problem = adopted.problem
        managed.last_adopted = desired
        known = managed.reconciler.topic if managed.reconciler is not None else None
        if managed.reconciler is None or known is None or known.uid != adopted.topic.uid:
            managed.start_reconciler(adopted.topic, self._warm_up.ends_at)
            log.info("topic.adopted", topic=desired.name, uid=adopted.topic.uid)
        else:
            managed.topic = managed.reconciler.topic = adopted.topic
        if managed.reconciler is not None:
            managed.reconciler.columns, managed.reconciler.generation = adopted.columns, desired.generation
        if adopted.problem:
            log.warning("topic.spec_rejected", topic=desired.name, message=adopted.problem)
        self._events.changed(managed)
