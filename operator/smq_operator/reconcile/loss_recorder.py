"""Records losses that become known after the seal.

After an accepted loss a replica that the leader cannot reach may go on acking until it finds the seal chunk. When it
reports again, its watermark is beyond the segment's end in the index, and the entry's lost range is raised to it.
Brokers repeat such a report, so a report that could not be recorded, or came to a leader that ended, needs no memory.

A position that a group commits beyond the end of a segment shows a loss in the same way: what is below it was acked.
Positions are durable, and a later leader compares them with the index when it adopts the topic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import structlog

from smq_core.errors import SmqError
from smq_core.model.decision import Decision, DecisionAction
from smq_core.model.entities import Positions, Topic
from smq_core.model.sealed_losses import raise_loss
from smq_operator.brokers.registry import Broker
from smq_operator.reconcile.decision_log import DecisionLog
from smq_operator.reconcile.topics.managed_topic import ManagedTopic
from smq_operator.reconcile.work_queue import WorkQueue
from smq_operator.runtime.log import lost_fields
from smq_operator.runtime.store_pool import StorePool
from smq_operator.runtime.task_runner import TaskRunner
from smq_storage.catalog import sealed_index

log = structlog.get_logger(__name__)


class LossRecorder:
    """Gets every report. Use it on the event loop."""

    def __init__(
        self,
        *,
        topics: Mapping[str, ManagedTopic],
        decisions: DecisionLog,
        queue: WorkQueue,
        store: StorePool,
        tasks: TaskRunner,
        clock: Callable[[], int],
    ) -> None:
        self._topics = topics
        self._decisions = decisions
        self._queue = queue
        self._store = store
        self._tasks = tasks
        self._now = clock
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
            if _shows_loss(managed, report.segment, report.watermark):
                found.setdefault(report.topic, {})[report.segment] = report.watermark
        for name, watermarks in found.items():
            source = f"{broker.replica.broker} acked messages beyond the seal, which was completed without it"
            self._start(self._topics[name], watermarks, source)
        return bool(found)

    def handle_positions(self, managed: ManagedTopic, group: str, positions: Positions) -> bool:
        """Records what the positions of a group show. True until the index has all of it; then call it again later."""
        found = {s: offset for s, offset in positions.items() if _shows_loss(managed, s, offset)}
        if found:
            self._start(managed, found, f"group {group} has read messages beyond the end of the segment")
        return bool(found)

    def _start(self, managed: ManagedTopic, acked: dict[str, int], source: str) -> None:
        topic = managed.topic
        if topic is None or topic.uid in self._recording:
            return
        self._tasks.spawn(self._record(managed, topic, acked, source), partial(self._recording.discard, topic.uid))
        self._recording.add(topic.uid)

    async def _record(self, managed: ManagedTopic, topic: Topic, acked: dict[str, int], source: str) -> None:
        try:
            entries = await self._store.run(
                sealed_index.raise_losses, topic.name, topic.uid, acked, self._store.retry_policy
            )
        except SmqError as error:
            log.warning("loss.record_failed", topic=topic.name, error=error.code, message=error.message)
            return
        if managed.topic is None or managed.topic.uid != topic.uid:
            return
        for entry in managed.index.update_losses(entries):
            fields = lost_fields(entry.lost)
            log.error("loss.raised", topic=topic.name, segment=entry.name, source=source, **fields)
            reason = f"{source}: {entry.lost} are lost"
            self._decisions.record(
                Decision(
                    at=self._now(),
                    topic=topic.name,
                    action=DecisionAction.RECORD_LOSS,
                    segments=(entry.name,),
                    reason=reason,
                )
            )
        self._queue.enqueue(managed)


def _shows_loss(managed: ManagedTopic, segment: str, acked_upto: int) -> bool:
    """Whether the index does not have all that is lost if messages up to this offset were acked."""
    entry = managed.index.sealed.get(segment)
    return entry is not None and raise_loss(entry, acked_upto) is not entry
