"""The lag of groups of Kafka clients for the metrics, as of groups of the library.

Their offsets are in the filer, and so are the ends of partitions. Both are read now and then, for a small share of the
time. Topics that no such group reads cost nothing but the listing of groups.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from smq_core.errors import CorruptChunk, DataLost, SmqError, UnknownTopic
from smq_core.kafka_groups.lag import TopicEnds, UnwrittenMessages, unread_messages
from smq_core.model.entities import Topic, range_of
from smq_core.reading.append_times import WatermarkHistory
from smq_core.reading.group_lag import GroupLag
from smq_operator.groups.group_lags import MAX_REPORTED_GROUPS
from smq_operator.groups.kafka_groups import KafkaGroupRecord, KafkaGroups
from smq_operator.reconcile.topics.directory import TopicDirectory
from smq_operator.reconcile.topics.managed_topic import ManagedTopic
from smq_operator.runtime.clock import Clock
from smq_operator.runtime.store_pool import StorePool
from smq_storage.partitions.stored_ends import stored_ends

log = structlog.get_logger(__name__)

SAMPLE_INTERVAL_SECONDS = 5.0
# A sample that takes a second is followed by a pause of that many seconds, so that reads of the filer stay few.
PAUSE_PER_SECOND = 20.0


@dataclass(frozen=True, slots=True)
class KafkaLagReport:
    group: str
    lag: GroupLag


@dataclass(frozen=True, slots=True)
class _Offsets:
    """Of one group in one topic."""

    group: KafkaGroupRecord
    committed: Mapping[int, int]


class KafkaLagSamples:
    """See the module's docstring. Use it on the event loop."""

    def __init__(self, *, topics: TopicDirectory, groups: KafkaGroups, store: StorePool, clock: Clock) -> None:
        self._topics = topics
        self._groups = groups
        self._store = store
        self._now = clock
        self._histories: dict[str, WatermarkHistory] = {}
        """How many messages each topic had when, by its uid."""
        self.counts: Mapping[str, int] = {}
        """How many groups have offsets of each topic."""
        self.reports: Mapping[str, list[KafkaLagReport]] = {}
        """By topic, for the metrics: at most ``MAX_REPORTED_GROUPS`` of each, by name."""

    async def run(self) -> None:
        """Samples until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                await self.sample()
            except SmqError as error:  # the filer is away: the last values stay
                log.info("kafka_groups.not_read", message=error.message)
            await asyncio.sleep(max(SAMPLE_INTERVAL_SECONDS, PAUSE_PER_SECOND * (loop.time() - began)))

    async def sample(self) -> None:
        """Raises StoreUnavailable."""
        found = {
            managed.name: (managed, managed.topic)
            for managed in self._topics.values()
            if managed.topic is not None and not managed.deleted and managed.topic.spec.has_kafka_offsets
        }
        records = (await self._groups.read())[0] if found else []
        counts: dict[str, int] = {}
        reports: dict[str, list[KafkaLagReport]] = {}
        for name, (managed, topic) in found.items():
            mine = [_Offsets(it, it.offsets[topic.uid]) for it in records if topic.uid in it.offsets]
            counts[name] = len(mine)
            reports[name] = await self._report(managed, topic, mine) if mine else []
        self.counts, self.reports = counts, reports
        living = {topic.uid for name, (_, topic) in found.items() if counts[name]}
        self._histories = {uid: it for uid, it in self._histories.items() if uid in living}

    async def _report(self, managed: ManagedTopic, topic: Topic, groups: list[_Offsets]) -> list[KafkaLagReport]:
        try:
            stored = await self._store.run(stored_ends, topic)
        except (DataLost, CorruptChunk, UnknownTopic) as error:
            log.info("kafka_groups.lag_unknown", topic=topic.name, message=error.message)
            return []
        # Read after the files, so that no message is missing between both.
        watermarks = managed.reconciler.watermarks if managed.reconciler is not None else {}
        unwritten = [
            UnwrittenMessages(range_of(name), max(0, watermarks.get(name, 0) - written))
            for name, written in stored.segments.items()
        ]
        ends = TopicEnds(stored.partitions, unwritten)
        now, total = self._now(), ends.messages
        history = self._histories.setdefault(topic.uid, WatermarkHistory([now], [total]))
        history.add(now, total)
        recent = sorted(groups, key=lambda it: (-it.group.active_at, it.group.name))[:MAX_REPORTED_GROUPS]
        reports = []
        for it in sorted(recent, key=lambda it: it.group.name):
            unread = unread_messages(it.committed, ends)
            since = history.time_of(total - unread) if unread else None
            reports.append(KafkaLagReport(it.group.name, GroupLag(unread, now - since if since is not None else 0)))
        return reports
