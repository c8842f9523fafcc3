"""Records losses that become known after the seal.

After an accepted loss a replica that the leader cannot reach may go on acking until it finds the seal chunk. When it
reports again, its watermark is beyond the segment's end in the index, and the entry's lost range is raised to it.
Brokers repeat such a report, so a report that could not be recorded, or came to a leader that ended, needs no memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import structlog

from smq_core.errors import SmqError
from smq_core.model.entities import SealedSegment, Topic
from smq_core.model.lost_range import raise_loss
from smq_core.reconcile.seal_planner import Decision
from smq_operator.brokers.registry import Broker
from smq_operator.reconcile.decision_log import DecisionLog
from smq_operator.reconcile.topics.managed_topic import ManagedTopic
from smq_operator.reconcile.work_queue import WorkQueue
from smq_operator.runtime.store_pool import StorePool
from smq_operator.runtime.task_runner import TaskRunner
from smq_storage.catalog import sealed_index
from smq_storage.object_store.conditional_writes import RetryPolicy

log = structlog.get_logger(__name__)


class LossRecorder:
    """Gets every report. Use it on the event loop."""

    def __init__(
        self,
        topics: Mapping[str, ManagedTopic],
        decisions: DecisionLog,
        queue: WorkQueue,
        store: StorePool,
        tasks: TaskRunner,
        clock: Callable[[], int],
        retry_policy: RetryPolicy,
    ) -> None:
        self._topics = topics
        self._decisions = decisions
        self._queue = queue
        self._store = store
        self._tasks = tasks
        self._now = clock
        self._retry_policy = retry_policy
        self._recording: set[str] = set()
        """The uids of topics whose index is being changed."""

    def handle_report(self, broker: Broker) -> bool:
        """Records what the broker acked beyond the ends of sealed segments. True until the index has all of it.

        What is reported while a topic's index is being changed waits for the next report, and so does a segment that
        is still in the layout. The broker cannot leave before that, because the layout assigns the segment to it.
        """
        found: dict[str, dict[str, int]] = {}
        for report in broker.status.segments:
            managed = self._topics.get(report.topic)
            if managed is None or managed.topic is None or managed.topic.uid != report.uid:
                continue
            if report.watermark > report.end:
                continue
            entry = managed.sealed.get(report.segment)
            if entry is not None and raise_loss(entry, report.watermark) is not entry:
                found.setdefault(report.topic, {})[report.segment] = report.watermark
        for name, watermarks in found.items():
            managed = self._topics[name]
            topic = managed.topic
            assert topic is not None
            if topic.uid not in self._recording:
                done = partial(self._recording.discard, topic.uid)
                self._tasks.spawn(self._record(managed, topic, watermarks, broker.replica.broker), done)
                self._recording.add(topic.uid)
        return bool(found)

    async def _record(self, managed: ManagedTopic, topic: Topic, watermarks: dict[str, int], broker: str) -> None:
        try:
            entries = await self._store.run(
                sealed_index.raise_losses, topic.name, topic.uid, watermarks, self._retry_policy
            )
        except SmqError as error:
            log.warning("loss.record_failed", topic=topic.name, error=error.code, message=error.message)
            return
        if managed.topic is None or managed.topic.uid != topic.uid:
            return
        for entry in managed.losses_raised(entries):
            assert entry.lost_from is not None and entry.lost_to is not None
            about = {"topic": topic.name, "segment": entry.name, "broker": broker}
            log.error("loss.raised", lost_from=entry.lost_from, lost_to=entry.lost_to, **about)
            decision = Decision(self._now(), topic.name, "record loss", (entry.name,), _reason(entry, broker))
            self._decisions.record(decision)
        self._queue.enqueue(managed)


def _reason(entry: SealedSegment, broker: str) -> str:
    return (
        f"{broker} acked messages beyond the seal, which was completed without it: "
        f"offsets {entry.lost_from} to {entry.lost_to} are lost"
    )
