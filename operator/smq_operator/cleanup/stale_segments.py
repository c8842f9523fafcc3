"""Seals segments of deleted topics that brokers still hold, so that the brokers free memory and the producers end.

A segment is stale only if the filer has another topic, or none, under the topic's name. A topic that is merely not
managed at the moment (its manifest cannot be read, or the filer was unreachable) is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

import structlog

from smq_core.errors import SmqError
from smq_core.model.entities import Replica, Topic, TopicSpec
from smq_core.sealing.seal_coordinator import RequestSeal
from smq_core.sealing.topic_deletion import REASON
from smq_operator.brokers.registry import Broker
from smq_operator.brokers.sealing import SealExecutor
from smq_operator.reconcile.topics.managed_topic import ManagedTopic
from smq_operator.runtime.store_pool import StorePool
from smq_operator.runtime.task_runner import TaskRunner
from smq_proto.v1 import data_pb2 as pb
from smq_storage.catalog.topics import read_current

log = structlog.get_logger(__name__)

CHECK_AFTER_US = 3_000_000
RECHECK_INTERVAL_US = 10_000_000
# Of how many unknown topics one broker's segments are checked at a time. A report can name any number.
MAX_TOPICS = 100
UNSEALED_STATES = (pb.SegmentReport.WAITING, pb.SegmentReport.OPEN, pb.SegmentReport.FENCED)


class StaleSegments:
    """Gets every report, and checks segments in the filer that belong to no managed topic for a while."""

    def __init__(
        self, topics: Mapping[str, ManagedTopic], store: StorePool, sealing: SealExecutor, tasks: TaskRunner
    ) -> None:
        self._topics = topics
        self._store = store
        self._sealing = sealing
        self._tasks = tasks
        self._next_check_at: dict[tuple[str, str], int] = {}

    def handle_report(self, broker: Broker, now: int) -> None:
        """Compares what the broker holds with the topics that live."""
        unknown: dict[str, list[pb.SegmentReport]] = {}
        for segment in broker.status.segments:
            managed = self._topics.get(segment.topic)
            living = managed is not None and (managed.topic is None or managed.topic.uid == segment.uid)
            if segment.state in UNSEALED_STATES and segment.uid and not living:
                unknown.setdefault(segment.uid, []).append(segment)
        for uid, segments in islice(unknown.items(), MAX_TOPICS):
            key = (broker.replica.incarnation, uid)
            next_check_at = self._next_check_at.setdefault(key, now + CHECK_AFTER_US)
            if now >= next_check_at:
                self._next_check_at[key] = now + RECHECK_INTERVAL_US
                self._tasks.spawn(self._seal_stale(broker.replica, segments))
        mine = [key for key in self._next_check_at if key[0] == broker.replica.incarnation and key[1] not in unknown]
        for key in mine:
            del self._next_check_at[key]

    async def _seal_stale(self, replica: Replica, segments: list[pb.SegmentReport]) -> None:
        topic = Topic(segments[0].topic, segments[0].uid, TopicSpec())
        about = {"topic": topic.name, "uid": topic.uid, "broker": replica.broker}
        try:
            current = await self._store.run(read_current, topic.name)
            if current is None or current[0] == topic.uid:
                return
            for segment in segments:
                await self._sealing.request_seal(topic, RequestSeal(segment.segment, replica), REASON)
                log.info("stale_segment.sealed", segment=segment.segment, **about)
        except SmqError as error:
            log.warning("stale_segment.seal_failed", message=error.message, **about)
