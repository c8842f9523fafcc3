"""The lag of all groups, with members or without, from what the leader has in memory.

Every few seconds the watermarks that brokers have reported are noted, and each group's lag is computed from its
positions, the layout and the index. Metrics show the result; no request is made for them, except for the files of
groups that are not loaded, every ten minutes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace

import structlog

from smq_core.errors import SmqError
from smq_core.model.entities import Micros, Positions
from smq_core.reading.append_times import AppendTimes, WatermarkHistory
from smq_core.reading.group_lag import GroupLag, SegmentGraph, SegmentLag, segment_lags, total_lag
from smq_operator.groups.group_coordinator import GroupCoordinator
from smq_operator.groups.idle_groups import GroupSnapshot
from smq_operator.reconcile.topics.directory import TopicDirectory
from smq_operator.reconcile.topics.managed_topic import ManagedTopic
from smq_operator.runtime.clock import Clock

log = structlog.get_logger(__name__)

SAMPLE_INTERVAL_SECONDS = 2.0
# The number of groups of one topic that metrics show: those that were active last.
MAX_REPORTED_GROUPS = 100
# The number of segments of one topic whose watermarks are noted, the newest ones.
MAX_HISTORIES = 1000


@dataclass(frozen=True, slots=True)
class LagReport:
    """The lag of one group, in total and for each segment that it has not read to its end."""

    group: GroupSnapshot
    total: GroupLag
    segments: list[SegmentLag]


class GroupLags:
    """See the module's docstring. Use it on the event loop."""

    def __init__(self, topics: TopicDirectory, groups: GroupCoordinator, clock: Clock) -> None:
        self._topics = topics
        self._groups = groups
        self._now = clock
        self._times: dict[str, AppendTimes] = {}
        self._graphs: dict[str, tuple[object, SegmentGraph]] = {}
        """By uid of the topic: the DAG, and the versions of layout and index that it was built from."""
        self._lags: dict[tuple[str, str], tuple[SegmentGraph, Positions, list[SegmentLag]]] = {}
        """By topic and group: what it was computed from, and the result."""
        self.counts: Mapping[str, int] = {}
        """How many groups each topic has."""
        self.reports: Mapping[str, list[LagReport]] = {}
        """By topic, for the metrics: at most ``MAX_REPORTED_GROUPS`` of each, by name."""

    async def run(self) -> None:
        """Samples until it is cancelled."""
        while True:
            await asyncio.sleep(SAMPLE_INTERVAL_SECONDS)
            counts: dict[str, int] = {}
            reports: dict[str, list[LagReport]] = {}
            for managed in list(self._topics.values()):
                if managed.topic is None or managed.layout is None or managed.deleted:
                    continue
                self._note_watermarks(managed)
                try:
                    await self._groups.idle.scan_if_due(managed.topic)
                except SmqError as error:
                    log.info("groups.not_read", topic=managed.name, message=error.message)
                groups = self._groups.snapshots(managed)
                counts[managed.name] = len(groups)
                reports[managed.name] = []
                for group in _active_last(groups):
                    reports[managed.name].append(self.report(managed, group))
                    await asyncio.sleep(0)  # a group that is far behind a long history takes milliseconds
            self.counts, self.reports = counts, reports
            uids = {managed.topic.uid for managed in self._topics.values() if managed.topic is not None}
            self._groups.idle.keep(uids)
            self._times = {uid: times for uid, times in self._times.items() if uid in uids}
            shown = {(topic, it.group.name) for topic, found in reports.items() for it in found}
            self._lags = {key: lags for key, lags in self._lags.items() if key in shown}
            self._graphs = {uid: graph for uid, graph in self._graphs.items() if uid in uids}

    def report(self, managed: ManagedTopic, group: GroupSnapshot) -> LagReport:
        """The lag of this group now."""
        times = self._times.get(managed.topic.uid if managed.topic is not None else "", AppendTimes())

        def appended_at(segment: str, offset: int) -> Micros | None:
            found = times.time_of(segment, offset)
            entry = managed.index.sealed.get(segment)
            if found is None and entry is not None:  # no report had it: messages count as evenly spread
                found = WatermarkHistory([entry.opened_at, entry.sealed_at], [0, entry.end]).time_of(offset)
            return found

        lags = self._unread(managed, group)
        return LagReport(group, total_lag(lags, appended_at, self._now()), lags)

    def _unread(self, managed: ManagedTopic, group: GroupSnapshot) -> list[SegmentLag]:
        """What the group has not read. While neither the DAG nor its positions change, only ends of segments do."""
        graph, watermarks = self._graph(managed), self._watermarks(managed)
        known = self._lags.get((managed.name, group.name))
        if known is not None and known[0] is graph and known[1] == group.positions:
            nodes = graph.nodes
            lags = [
                it if nodes[it.segment].end is not None else replace(it, end=watermarks.get(it.segment, 0))
                for it in known[2]
            ]
        else:
            lags = segment_lags(graph, group.positions, watermarks)
        self._lags[managed.name, group.name] = graph, group.positions, lags
        return lags

    def _graph(self, managed: ManagedTopic) -> SegmentGraph:
        reconciler, uid = managed.reconciler, managed.topic.uid if managed.topic is not None else ""
        version = (
            (reconciler.etag, managed.index.changes, reconciler.sealed_count()) if reconciler is not None else None
        )
        known = self._graphs.get(uid)
        if known is None or known[0] != version:
            known = self._graphs[uid] = (version, SegmentGraph.of(managed.nodes()))
        return known[1]

    def _note_watermarks(self, managed: ManagedTopic) -> None:
        assert managed.topic is not None and managed.layout is not None
        times = self._times.setdefault(managed.topic.uid, AppendTimes())
        now, watermarks = self._now(), self._watermarks(managed)
        for segment in managed.layout.segments:
            if segment.name in watermarks:
                times.observe(segment.name, segment.opened_at, watermarks[segment.name], now)
        if len(times.histories) > MAX_HISTORIES or times.histories.keys() - self._graph(managed).nodes.keys():
            living = [segment.name for segment in managed.layout.segments]
            times.keep({*list(managed.index.sealed)[-MAX_HISTORIES // 2 :], *living})

    @staticmethod
    def _watermarks(managed: ManagedTopic) -> Positions:
        return managed.reconciler.watermarks if managed.reconciler is not None else {}


def _active_last(groups: Mapping[str, GroupSnapshot]) -> list[GroupSnapshot]:
    """At most ``MAX_REPORTED_GROUPS`` groups, by name: those with members, and then those that were active last."""
    recent = sorted(groups.values(), key=lambda it: (not it.members, -it.last_active_at, it.name))
    return sorted((it for it in recent[:MAX_REPORTED_GROUPS] if not it.unreadable), key=lambda it: it.name)
