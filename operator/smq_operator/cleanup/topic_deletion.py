"""Seals the segments of deleted topics where they are, so that no broker acks a message of them any more.

The filer says which topics are to be sealed: those with a record of deletion that is not marked ``sealed``, whose uid
is not the current uid of the name. So any later leader continues what an earlier one began. (A topic whose manifest
merely vanished keeps its name for a while. It may return, and is left alone.)

First the layout is marked as the topic's last one by compare-and-swap. A PUT of the layout that was under way when the
topic was deleted lands before that or never, and a leader that has not noticed the deletion reads that it must not open
anything. The record is marked ``sealed`` when every segment of that layout has its seal chunk.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import structlog

from smq_core.errors import Conflict, CorruptDocument, SmqError, Unavailable
from smq_core.model.entities import Layout, Liveness, Replica, Topic, TopicSpec
from smq_core.model.layout_transitions import mark_deleted
from smq_core.sealing.seal_coordinator import SealEffect, SealFromFiler
from smq_core.sealing.topic_deletion import REASON, TopicDeletion
from smq_operator.brokers.registry import BrokerRegistry
from smq_operator.brokers.sealing import SealExecutor
from smq_operator.cleanup.document_scan import DocumentQuarantine, DocumentScan
from smq_operator.platform_port import Platform
from smq_operator.reconcile.topics.adoption import retire
from smq_operator.reconcile.topics.managed_topic import ManagedTopic
from smq_operator.reconcile.topics.topic_events import TopicEvents
from smq_operator.reconcile.warm_up import WarmUp
from smq_operator.runtime.clock import Clock
from smq_operator.runtime.store_pool import StorePool
from smq_operator.runtime.task_runner import TaskRunner
from smq_storage.catalog import layouts, paths
from smq_storage.catalog.deleted_topics import list_deleted_topics, mark_sealed, read_deleted_topic
from smq_storage.catalog.topics import read_current, read_topic
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import Store

log = structlog.get_logger(__name__)

CHECK_INTERVAL_SECONDS = 10.0
RETRY_INTERVAL_SECONDS = 0.5
TICK_SECONDS = 0.1


@dataclass(slots=True)
class _PendingDeletion:
    """One topic that is being sealed. ``done`` is set when it is sealed, or turns out not to be deleted."""

    name: str
    uid: str
    done: asyncio.Event = field(default_factory=asyncio.Event)
    deletion: TopicDeletion | None = None
    problem: str = ""
    unreadable: str = ""
    """The path of its document that cannot be read."""


class TopicDeletionManager:
    """See the module's docstring. Use it on the event loop."""

    def __init__(
        self,
        *,
        topics: Mapping[str, ManagedTopic],
        events: TopicEvents,
        registry: BrokerRegistry,
        platform: Platform,
        store: StorePool,
        sealing: SealExecutor,
        tasks: TaskRunner,
        warm_up: WarmUp,
        clock: Clock,
    ) -> None:
        self._topics = topics
        self._registry = registry
        self._platform = platform
        self._store = store
        self._sealing = sealing
        self._tasks = tasks
        self._warm_up = warm_up
        self._now = clock
        self._pending: dict[str, _PendingDeletion] = {}
        self._completed: set[str] = set()
        self.has_synced = False
        """Whether this leader knows which deletions earlier leaders have left unfinished."""
        self._synced_when_warm = False
        self._problems = tasks.problems
        self._quarantine = DocumentQuarantine(
            tasks.problems, clock, "the leader does not seal the segments of this deleted topic"
        )
        events.on_deleted(self._on_topic_deleted)

    async def run(self) -> None:
        """Continues the deletions of earlier leaders and those that failed, until it is cancelled."""
        while True:
            warmed_up = self._warm_up.over
            try:
                scan = DocumentScan()
                for name, uid in await self._store.run(_unsealed, self._completed, scan):
                    self.start(name, uid)
                if self._quarantine.update(scan):
                    self.has_synced = True
                    # A listing may be older than the record of a deletion that an earlier leader has just completed.
                    self._synced_when_warm = self._synced_when_warm or warmed_up
            except SmqError as error:
                log.warning("topic_deletions.list_failed", error=error.code, message=error.message)
            await asyncio.sleep(CHECK_INTERVAL_SECONDS if self._synced_when_warm else RETRY_INTERVAL_SECONDS)

    def start(self, name: str, uid: str) -> None:
        """Starts to seal this deleted topic beside the loop. Repeating it is harmless."""
        if uid not in self._pending and not self._is_live(uid):
            it = _PendingDeletion(name, uid)
            self._tasks.spawn(self._run_deletion(it))
            self._pending[uid] = it

    def _on_topic_deleted(self, managed: ManagedTopic) -> None:
        """Starts at once if the platform assigns uids, because the topic never returns under this uid then."""
        if managed.topic is not None and managed.desired.uid == managed.topic.uid:
            self.start(managed.name, managed.topic.uid)

    def uid_of(self, name: str) -> str | None:
        """The uid of the deleted topic of that full name that is being sealed now."""
        return next((it.uid for it in self._pending.values() if it.name == name), None)

    def blocks_leaving(self, incarnation: str) -> bool:
        """True while this incarnation may hold messages of a deleted topic that no seal chunk covers yet.

        This holds for every incarnation until this leader knows the unfinished deletions.
        """
        if not self._synced_when_warm:
            return True
        for it in self._pending.values():
            if it.unreadable:
                continue  # nobody knows its segments, so no broker can wait for them; a broker writes its tails first
            if it.deletion is None:
                return True
            unsealed = set(it.deletion.unsealed)
            for segment in it.deletion.layout.segments:
                if segment.name in unsealed and incarnation in {r.incarnation for r in segment.replicas}:
                    return True
        return False

    async def wait_until_sealed(self, uid: str, timeout: float) -> None:
        """Returns when no broker acks its messages any more. Raises Unavailable after ``timeout`` seconds."""
        it = self._pending.get(uid)
        if it is None:
            return
        try:
            async with asyncio.timeout(timeout):
                await it.done.wait()
        except TimeoutError:
            raise Unavailable(_pending_reason(it)) from None

    # ---- one topic

    async def _run_deletion(self, it: _PendingDeletion) -> None:
        try:
            while not self._is_live(it.uid):
                try:
                    await self._attempt(it)
                    break
                except CorruptDocument as error:
                    it.problem, it.unreadable = error.message, error.path
                    self._problems.quarantine(
                        error.path, f"{error.message}. The leader does not seal the deleted topic {it.name}: restore it"
                    )
                except SmqError as error:
                    it.problem = error.message
                    log.warning("topic.deletion_failed", topic=it.name, uid=it.uid, message=error.message)
                except Exception as error:
                    it.problem = f"unexpected: {error}"
                    log.exception("topic.deletion_failed", topic=it.name, uid=it.uid)
                await asyncio.sleep(RETRY_INTERVAL_SECONDS)
            it.done.set()
        finally:
            if it.unreadable:
                self._problems.readable(it.unreadable)
            self._pending.pop(it.uid, None)

    async def _attempt(self, it: _PendingDeletion) -> None:
        await self._store.run(retire, it.name, it.uid, self._store.retry_policy, self._now())
        topic, layout = await self._store.run(_close_layout, it.name, it.uid, self._store.retry_policy)
        if layout is not None:
            it.deletion = TopicDeletion(layout)
            await self._seal_all(it, it.deletion, topic)
        if self._is_live(it.uid):
            return
        await self._store.run(mark_sealed, it.uid, self._store.retry_policy)
        self._completed.add(it.uid)
        names = [segment.name for segment in layout.segments] if layout is not None else []
        log.info("topic.deletion_completed", topic=it.name, uid=it.uid, segments=sorted(names))

    async def _seal_all(self, it: _PendingDeletion, deletion: TopicDeletion, topic: Topic) -> None:
        """Returns when every segment of this layout is sealed."""
        layout = deletion.layout
        for segment in layout.segments:
            if any(self._liveness(r) is not Liveness.ALIVE for r in segment.replicas):
                # It may have been sealed long ago, by replicas that no longer exist.
                outcome = await self._sealing.find_seal(topic, segment.name)
                if outcome is not None:
                    deletion.sealed(outcome)
        replicas = {r.incarnation: r for segment in layout.segments for r in segment.replicas}
        running: set[asyncio.Task[None]] = set()
        while deletion.unsealed and not self._is_live(it.uid):
            for step in deletion.step(self._now(), lambda name: self._liveness(replicas[name])):
                running.add(self._tasks.spawn(self._execute(deletion, topic, step)))
            if running:
                _, running = await asyncio.wait(running, timeout=TICK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            else:
                await asyncio.sleep(TICK_SECONDS)
        for step in deletion.step(self._now(), lambda name: self._liveness(replicas[name])):
            self._tasks.spawn(self._execute(deletion, topic, step))  # lets the other replicas free their tails

    async def _execute(self, deletion: TopicDeletion, topic: Topic, step: SealEffect) -> None:
        try:
            if isinstance(step, SealFromFiler):
                outcome = await self._sealing.seal_from_filer(topic, deletion.layout, step)
            else:
                outcome = await self._sealing.request_seal(topic, step, REASON)
        except Exception as error:  # every step is answered, so that it is tried again
            code = error.code if isinstance(error, SmqError) else type(error).__name__
            log.warning("segment.seal_failed", topic=topic.name, segment=step.segment, error=code, message=str(error))
            deletion.failed(step, error, self._now())
        else:
            deletion.sealed(outcome)

    def _is_live(self, uid: str) -> bool:
        return any(
            uid in (managed.desired.uid, managed.topic.uid if managed.topic is not None else None)
            for managed in self._topics.values()
        )

    def _liveness(self, replica: Replica) -> Liveness:
        """From the registry, or from the platform if the registry does not have this incarnation."""
        known = self._registry.get(replica.incarnation)
        if known is not None:
            return known.liveness(self._now())
        proof = self._platform.termination_proof(replica.incarnation)
        if proof is not None and proof.journal_gone:
            return Liveness.GONE
        if self._registry.superseded(replica, self._now()):
            return Liveness.GONE
        return Liveness.SUSPECT if proof is None else Liveness.ENDED


def _close_layout(store: Store, name: str, uid: str, retry_policy: RetryPolicy) -> tuple[Topic, Layout | None]:
    """Marks the layout as the topic's last one. Raises StoreUnavailable."""
    topic = read_topic(store, name, uid) or Topic(name, uid, TopicSpec())
    while (found := layouts.read_layout(store, name, uid)) is not None:
        layout, etag = found
        if layout.deleted:
            return topic, layout
        with suppress(Conflict):  # a leader that had not noticed the deletion wrote first
            layouts.put_layout(store, mark_deleted(layout, writer=uuid.uuid4().hex), etag, retry_policy)
    return topic, None


def _unsealed(store: Store, ended: set[str], scan: DocumentScan) -> list[tuple[str, str]]:
    """Name and uid of the deleted topics that are not sealed. Adds to ``ended`` those that are."""
    found = []
    for uid in list_deleted_topics(store):
        with scan.document(paths.deleted_topic(uid)):
            deleted_topic = read_deleted_topic(store, uid) if uid not in ended else None
            if deleted_topic is None:
                continue
            if deleted_topic.sealed:
                ended.add(uid)
                continue
            current = read_current(store, deleted_topic.topic)
            if current is not None and current[0] != uid:
                found.append((deleted_topic.topic, uid))
    return found


def _pending_reason(it: _PendingDeletion) -> str:
    """Why a topic is not sealed yet, and what to do."""
    what = f"topic {it.name} is deleted, but not all of its segments are sealed yet"
    if it.deletion is not None and it.deletion.blocked:
        unresponsive = sorted({name for blocked in it.deletion.blocked.values() for name in blocked.waiting_for})
        what += (
            f": {', '.join(sorted(it.deletion.blocked))} may still accept messages at replicas that do not respond "
            f"and are not confirmed gone ({', '.join(unresponsive)})"
        )
    elif it.problem:
        what += f": {it.problem}"
    return (
        what + ". Deletion continues in the background. Stop producers, and repeat the command to wait for completion"
    )
