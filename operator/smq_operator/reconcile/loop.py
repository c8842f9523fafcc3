"""The leader's reconcile loop: compares desired topics, layouts and brokers, and starts the effects that core returns.

The loop is level-triggered. It runs at once when something is enqueued (an answer, a report, a broker that ended, a
request) and every 100 ms otherwise. An enqueued topic is reconciled at once; every other topic is reconciled at its own
interval, so correctness never depends on a notification. All of this runs on one event loop and needs no locks; store
and brokers are called in tasks. If reconciling a topic fails, the loop suspends that topic for a second and goes on
with the others.
"""

from __future__ import annotations

from functools import partial

import structlog

from smq_core.model.decision import Decision, DecisionAction
from smq_core.model.entities import SECOND
from smq_core.reconcile.answers import ReplicaOpened
from smq_core.reconcile.effects import Effect, OpenReplica, PutLayout
from smq_core.reconcile.topic_reconciler import TopicReconciler
from smq_operator.brokers.registry import BrokerRegistry
from smq_operator.platform_port import Platform
from smq_operator.reconcile.broker_assignments import BrokerAssignments, loads_of
from smq_operator.reconcile.decision_log import DecisionLog
from smq_operator.reconcile.effects import EffectRunner
from smq_operator.reconcile.topic_sync import TopicSync
from smq_operator.reconcile.topics.directory import TopicDirectory
from smq_operator.reconcile.topics.managed_topic import ManagedTopic
from smq_operator.reconcile.topics.topic_events import TopicEvents
from smq_operator.reconcile.warm_up import WarmUp
from smq_operator.reconcile.work_queue import WorkQueue
from smq_operator.runtime.clock import Clock
from smq_operator.runtime.task_runner import TaskRunner

log = structlog.get_logger(__name__)

TICK_SECONDS = 0.1
# In a row. Then the loop ends with the error, because a leader whose passes all fail leads nothing.
MAX_FAILED_RECONCILIATIONS = 100


class LeaderLoop:
    """See the module's docstring."""

    def __init__(
        self,
        *,
        platform: Platform,
        registry: BrokerRegistry,
        topics: TopicDirectory,
        sync: TopicSync,
        assignments: BrokerAssignments,
        effects: EffectRunner,
        decisions: DecisionLog,
        events: TopicEvents,
        queue: WorkQueue,
        tasks: TaskRunner,
        warm_up: WarmUp,
        clock: Clock,
    ) -> None:
        self._platform = platform
        self._registry = registry
        self._topics = topics
        self._sync = sync
        self._assignments = assignments
        self._effects = effects
        self._decisions = decisions
        self._events = events
        self._queue = queue
        self._tasks = tasks
        self._warm_up = warm_up
        self._now = clock
        self.reconciliations = 0
        self._last_tick_at = 0
        self._platform_changed = True
        self._broker_states: object = None
        self._loads_updated_at = -SECOND
        self._stopping = False

    # ---- running

    def platform_changed(self) -> None:
        """The answers of the platform have changed."""
        self._platform_changed = True
        self._queue.enqueue()

    async def run(self) -> None:
        """Runs until ``stop``. The warm-up begins now. Raises the error of the last pass if too many fail in a row."""
        self._warm_up.restart()
        failed = 0
        while not self._stopping:
            try:
                self.reconcile()
                failed = 0
            except Exception:
                failed += 1
                log.exception("reconcile.failed", in_a_row=failed)
                if failed >= MAX_FAILED_RECONCILIATIONS:
                    raise
            await self._queue.wait(TICK_SECONDS)

    def pause_detected(self, microseconds: int) -> None:
        """This process was paused for that time of the warm-up, so no broker could report in it."""
        for managed in self._topics.values():
            if managed.reconciler is not None:
                managed.reconciler.warm_up_until += microseconds
        if self.reconciliations:  # before its election a leader does not read its clock
            log.warning("leader.pause_detected", seconds=microseconds / 1e6)

    async def stop(self) -> None:
        """Ends the loop and abandons running effects; the next leader repeats them."""
        self._stopping = True
        self._queue.enqueue()
        await self._tasks.stop()

    # ---- one pass

    def reconcile(self) -> None:
        """Compares everything that is due once."""
        now = self._now()
        self.reconciliations += 1
        if self._platform_changed or now - self._last_tick_at >= TICK_SECONDS * 1e6:
            self._tick(now)
        states = self._registry.states(now)
        if states != self._broker_states:
            self._broker_states = states
            self._assignments.brokers_changed()
            self._queue.mark_all_due()
        all_due = self._queue.take_all_due()
        brokers_starting = self._warm_up.fleet_may_be_starting and (
            len(self._registry.alive(now)) < self._platform.desired_brokers()
        )
        for managed in list(self._topics.values()):
            if (
                managed.reconciler is None
                or now < managed.retry_at
                or not (all_due or managed.due or now >= managed.next_check_at)
            ):
                continue
            managed.due = False
            self._assignments.account(managed)
            try:
                is_new = managed.layout is None
                views = {} if brokers_starting and is_new else self._assignments.views()
                effects = managed.reconciler.step(now, views)
                managed.next_check_at = now if effects else managed.next_check_after(now)
                self._publish(managed, managed.reconciler)
                for effect in effects:
                    self._start(managed, managed.reconciler, effect)
            except Exception as error:
                self._suspend(managed, error)

    def _tick(self, now: int) -> None:
        """What is not repeated at every wakeup."""
        changed, self._last_tick_at, self._platform_changed = self._platform_changed, now, False
        if changed or self._sync.is_due(now):
            self._sync.sync()
        for broker in self._registry.apply_termination_proofs(self._topics.layouts().values(), now):
            log.warning(
                "broker.ended" if broker.gone is None else "broker.gone",
                broker=broker.replica.broker,
                incarnation=broker.replica.incarnation,
                proof=broker.terminated,
            )
            if broker.ended_unexpectedly and broker.cause_at == now:
                reason = f"{broker.replica.broker}: {broker.cause}"
                self._decisions.record_of_brokers(
                    Decision(at=now, topic="", action=DecisionAction.BROKER_ENDED, segments=(), reason=reason)
                )
            self._effects.forget_broker(broker.replica.incarnation)
        if now - self._loads_updated_at >= SECOND:  # brokers report as often
            self._loads_updated_at = now
            self._update_loads()
            for incarnation in self._assignments.forget_brokers(now):
                self._effects.forget_broker(incarnation)

    def _update_loads(self) -> None:
        total: dict[str, float] = {}
        for managed in self._topics.values():
            try:
                loads = loads_of(managed)
            except Exception as error:
                self._suspend(managed, error)
                continue
            for incarnation, load in loads.items():
                total[incarnation] = total.get(incarnation, 0.0) + load
        self._assignments.set_loads(total)

    def _suspend(self, managed: ManagedTopic, error: Exception) -> None:
        """A topic that fails must not affect the others: it is reconciled anew, from the filer, in a second."""
        log.exception("topic.reconcile_failed", topic=managed.name)
        self._sync.restart(
            managed, f"reconciling the topic failed ({error}); the leader retries every second. See its log"
        )

    def _start(self, managed: ManagedTopic, reconciler: TopicReconciler, effect: Effect) -> None:
        if isinstance(effect, OpenReplica):
            name, incarnation = effect.segment.name, effect.replica.incarnation
            if self._registry.holds(incarnation, reconciler.topic.uid, name):  # an earlier leader opened it
                reconciler.handle(ReplicaOpened(name, incarnation), self._now())
                self._queue.enqueue(managed)
                return
        if isinstance(effect, PutLayout):
            self._assignments.account(managed)
        self._tasks.spawn(self._run_effect(managed, reconciler, effect), partial(self._queue.enqueue, managed))

    async def _run_effect(self, managed: ManagedTopic, reconciler: TopicReconciler, effect: Effect) -> None:
        """Every effect is answered. If that fails the topic restarts, because it would wait for the answer forever."""
        try:
            await self._effects.run(managed, reconciler, effect)
        except Exception as error:
            if managed.reconciler is reconciler:
                self._suspend(managed, error)

    def _publish(self, managed: ManagedTopic, reconciler: TopicReconciler) -> None:
        """Records new decisions, and announces a change of the layout or the index."""
        for decision in reconciler.decisions:
            self._decisions.record(decision)
        if reconciler.decisions:
            reconciler.decisions.clear()
            managed.notify_changed()  # a request that can no longer be carried out fails at once
        announced_version = (reconciler.etag, managed.index.changes)
        if announced_version != managed.announced_version:
            managed.announced_version = announced_version
            self._assignments.layouts_changed()
            self._events.changed(managed)
