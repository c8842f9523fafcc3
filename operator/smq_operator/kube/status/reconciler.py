"""Keeps the resources of topics in the state that the leader has: writes changes, and reverts edits by others.

Level-triggered like the leader's loop: any hint that a topic changed makes it compare the whole topic. Hints come from
the loop and from the cache; a poll once a second finds the rest. A failed write is not repeated. Instead its topic is
compared again, with growing delays. The leader does not wait for any of this.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass

import structlog

from smq_core.model.decision import Decision
from smq_operator.kube.client.errors import ApiServerUnreachable, Forbidden, KubeError, NotFound
from smq_operator.kube.client.events import EventRecorder, KubeEvent, ObjectReference
from smq_operator.kube.client.kinds import SEGMENTS, TOPICS, Key, Kind, Resource
from smq_operator.kube.informer.cache import ResourceCache
from smq_operator.kube.status.decision_events import DecisionEventRecorder, key_of_topic
from smq_operator.kube.status.diff import compute_writes
from smq_operator.kube.status.resource_snapshot import resource_snapshot_of
from smq_operator.kube.status.writer import StatusApi, StatusWriter
from smq_operator.platform_port import Platform
from smq_operator.reconcile.decision_log import DecisionLog
from smq_operator.reconcile.manual_requests import ManualRequests
from smq_operator.reconcile.topics.directory import TopicDirectory
from smq_operator.reconcile.topics.managed_topic import ManagedTopic
from smq_operator.reconcile.topics.topic_events import TopicEvents
from smq_operator.runtime.clock import Clock
from smq_operator.runtime.problems import LeaderProblems
from smq_operator.status.health import HealthMonitor
from smq_operator.status.topic_snapshot import unread_by

log = structlog.get_logger(__name__)

MIN_INTERVAL_SECONDS = 0.2
POLL_INTERVAL_SECONDS = 1.0
MAX_CONCURRENT = 8
INITIAL_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS = 0.5, 30.0


@dataclass(slots=True)
class _TopicState:
    """The state of one topic between two comparisons."""

    fingerprint: object = None
    decision: Decision | None = None
    without_layout_since: int | None = None
    busy: bool = False
    waiting: bool = False
    """Whether a request in an annotation is pending."""
    failures: int = 0
    not_before: float = 0.0


class StatusReconciler:
    """See the module's docstring. Use it on the loop's event loop."""

    def __init__(
        self,
        *,
        topics: TopicDirectory,
        topic_events: TopicEvents,
        platform: Platform,
        decisions: DecisionLog,
        requests: ManualRequests,
        clock: Clock,
        api: StatusApi,
        cache: ResourceCache,
        events: EventRecorder,
        health: HealthMonitor,
        problems: LeaderProblems,
    ) -> None:
        self._topics = topics
        self._platform = platform
        self._requests = requests
        self._now = clock
        self._cache = cache
        self._events = events
        self._writer = StatusWriter(api, cache, events)
        self._decision_events = DecisionEventRecorder(
            decisions=decisions, platform=platform, leader_problems=problems, cache=cache, events=events
        )
        self._health = health
        self._states: dict[str, _TopicState] = {}
        self._queue: dict[str, None] = {}
        self._wake = asyncio.Event()
        self._slots = asyncio.Semaphore(MAX_CONCURRENT)
        self._segments: defaultdict[str, set[str]] = defaultdict(set)
        """By topic: the names of its Segment resources."""
        self._tasks: set[asyncio.Task[None]] = set()
        topic_events.on_change(lambda managed: self._enqueue(managed.name))
        cache.on_change(self._on_resource_change)
        for namespace, name in cache.segments:
            self._segments[_topic_of_segment(namespace, name)].add(name)

    @property
    def written(self) -> int:
        """How many writes the API server accepted, without Events."""
        return self._writer.written

    @property
    def busy(self) -> bool:
        """Whether some topic is queued or being compared."""
        return bool(self._queue) or any(state.busy for state in self._states.values())

    # ---- hints

    def _on_resource_change(self, kind: Kind, key: Key, resource: Resource | None) -> None:
        namespace, name = key
        if kind is TOPICS:
            self._enqueue(f"{namespace}/{name}")
        elif kind is SEGMENTS:
            topic = _topic_of_segment(namespace, name)
            names = self._segments[topic]
            names.add(name) if resource is not None else names.discard(name)
            if not names:
                del self._segments[topic]
            self._enqueue(topic)

    def _enqueue(self, topic: str) -> None:
        self._queue[topic] = None
        self._wake.set()

    # ---- running

    async def run(self) -> None:
        """Runs until it is cancelled. If it is run again after a failure, it compares every topic again."""
        self._forget_comparisons()
        clock = asyncio.get_running_loop().time
        last_poll_at = clock() - POLL_INTERVAL_SECONDS
        try:
            while True:
                if clock() - last_poll_at >= POLL_INTERVAL_SECONDS:
                    last_poll_at = clock()
                    self._poll()
                self._start_due(clock())
                self._wake.clear()
                await asyncio.sleep(MIN_INTERVAL_SECONDS)
                try:
                    async with asyncio.timeout_at(last_poll_at + POLL_INTERVAL_SECONDS):
                        await self._wake.wait()
                except TimeoutError:
                    pass
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _forget_comparisons(self) -> None:
        """Nothing else remembers a topic whose comparison was cancelled, and one that never began stays busy."""
        for state in self._states.values():
            state.busy, state.fingerprint = False, None

    def _poll(self) -> None:
        """Queues the topics whose facts have changed and those with pending requests."""
        for name in [name for name in self._states if name not in self._topics]:
            del self._states[name]
        for name, managed in self._topics.items():
            state = self._state_of(name)
            try:
                fingerprint = self._fingerprint(managed)
            except Exception as error:  # one topic must not affect the others
                self._failed(name, state, error)
                continue
            if fingerprint != state.fingerprint or state.waiting or managed.layout is None:
                state.fingerprint = fingerprint
                self._queue[name] = None

    def _fingerprint(self, managed: ManagedTopic) -> object:
        """What differs when the status of the topic may differ."""
        etag = managed.reconciler.etag if managed.reconciler is not None else None
        desired = (managed.rejection, managed.last_adopted == managed.desired, managed.desired.paused)
        return (
            self._health.warmed_up,
            etag,
            managed.index.changes,
            managed.unreadable,
            unread_by(managed),
            desired,
            self._health.issues(managed.name),
        )

    def _state_of(self, name: str) -> _TopicState:
        state = self._states.get(name)
        if state is None:
            state = self._states[name] = _TopicState()
        return state

    def _start_due(self, clock: float) -> None:
        """Starts the comparison of every topic that is due."""
        for decision in self._decision_events.record():
            if decision.topic in self._topics:
                self._state_of(decision.topic).decision = decision
                self._queue[decision.topic] = None
        desired_topics = self._platform.desired_topics() if self._queue else {}
        for name in list(self._queue):
            managed = self._topics.get(name)
            if managed is None:
                del self._queue[name]  # it was deleted; owner references delete its Segments
                continue
            state = self._state_of(name)
            if state.busy or clock < state.not_before:
                continue
            task = asyncio.ensure_future(
                self._reconcile(managed, state, managed.last_adopted == desired_topics.get(name))
            )
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            del self._queue[name]
            state.busy = True

    # ---- one topic

    async def _reconcile(self, managed: ManagedTopic, state: _TopicState, spec_followed: bool) -> None:
        try:
            async with self._slots:
                await self._write_changes(managed, state, spec_followed)
            state.failures, state.not_before = 0, 0.0
        except Exception as error:
            self._failed(managed.name, state, error)
        finally:
            state.busy = False
            if managed.name in self._queue:
                self._wake.set()

    async def _write_changes(self, managed: ManagedTopic, state: _TopicState, spec_followed: bool) -> None:
        """Writes what differs. ``spec_followed``: the leader follows the spec. Raises KubeError at the first error."""
        topic = self._cache.topics.get(key_of_topic(managed.name))
        if topic is None or "deletionTimestamp" in topic["metadata"] or not self._is_known(managed, state, topic):
            return
        uid = topic["metadata"]["uid"]
        if managed.topic is not None and managed.topic.uid != uid:
            return  # the leader still has an earlier topic of this name
        state.waiting = await self._writer.handle_annotations(self._requests, managed, self._resources(managed.name))
        generation = topic["metadata"].get("generation") if spec_followed else None
        snapshot = resource_snapshot_of(managed, generation, uid, self._health.issues(managed.name), state.decision)
        for write in compute_writes(snapshot, topic, self._resources(managed.name), self._now()):
            await self._writer.write(write)

    def _resources(self, topic: str) -> dict[str, Resource]:
        namespace = key_of_topic(topic)[0]
        return {name: self._cache.segments[namespace, name] for name in sorted(self._segments.get(topic, ()))}

    def _is_known(self, managed: ManagedTopic, state: _TopicState, topic: Resource) -> bool:
        """Whether the leader knows enough of the topic to change its resources."""
        is_new = not (topic.get("status") or {}).get("segments")
        if not (is_new or self._health.warmed_up):
            return False
        if managed.layout is not None and managed.index.is_read:
            state.without_layout_since = None
            return True
        now = self._now()
        if state.without_layout_since is None:
            state.without_layout_since = now
        return (is_new and managed.problem is not None) or now - state.without_layout_since >= self._health.warm_up_us

    def _failed(self, name: str, state: _TopicState, error: Exception) -> None:
        state.failures += 1
        backoff = min(MAX_BACKOFF_SECONDS, INITIAL_BACKOFF_SECONDS * 2.0 ** min(state.failures - 1, 10))
        state.not_before = asyncio.get_running_loop().time() + backoff
        self._queue[name] = None
        if not isinstance(error, KubeError):
            log.error("status.write_failed", topic=name, exc_info=error)
            return
        if isinstance(error, Forbidden) and "being terminated" in error.message:
            log.info("status.namespace_terminating", topic=name)
            return
        log.warning("status.write_failed", topic=name, message=error.message, retry_in_seconds=backoff)
        topic = self._cache.topics.get(key_of_topic(name))
        if topic is not None and state.failures > 2 and not isinstance(error, ApiServerUnreachable | NotFound):
            self._events.record(
                KubeEvent(ObjectReference.of(TOPICS, topic), "StatusNotWritten", error.message, warning=True)
            )


def _topic_of_segment(namespace: str, segment: str) -> str:
    """The full name of the topic of a Segment. The name ends in the two numbers of the range and its number."""
    return f"{namespace}/{segment.rsplit('-', 3)[0]}"
