"""What Prometheus scrapes: read from the segments at that moment, so that it costs nothing on the way of a batch."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from smq_broker.holdings import Holdings

_ROLES = ("primary", "follower")


class SegmentCollector(Collector):
    """Sums over all segments by role; never one series per segment."""

    def __init__(self, holdings: Holdings) -> None:
        self._holdings = holdings

    def collect(self) -> Iterable[Metric]:
        segments = GaugeMetricFamily("smq_segments", "Segments held.", labels=["role", "state"])
        tail = GaugeMetricFamily("smq_tail_bytes", "Bytes of tails in memory.", labels=["role"])
        messages = CounterMetricFamily("smq_messages", "Messages taken in.", labels=["role"])
        size = CounterMetricFamily("smq_bytes", "Bytes taken in.", labels=["role"])
        batches = CounterMetricFamily("smq_batches", "Batches taken in.", labels=["role"])
        counted: dict[tuple[str, str], int] = {}
        held = self._holdings.all()
        for role in _ROLES:
            of_role = [h for h in held if h.is_primary == (role == "primary")]
            gone = self._holdings.forgotten[role]
            for h in of_role:
                key = (role, h.machine.state.value)
                counted[key] = counted.get(key, 0) + 1
            tail.add_metric([role], sum(h.machine.tail_bytes for h in of_role))
            messages.add_metric([role], gone.messages + sum(h.machine.counters.messages for h in of_role))
            size.add_metric([role], gone.bytes + sum(h.bytes_in for h in of_role))
            batches.add_metric([role], gone.batches + sum(h.machine.counters.batches for h in of_role))
        for labels, number in sorted(counted.items()):
            segments.add_metric(labels, number)
        yield from (segments, tail, messages, size, batches)
        yield from self._memory()

    def _memory(self) -> Iterable[Metric]:
        memory = self._holdings.memory
        used = GaugeMetricFamily("smq_memory_used_bytes", "Used of each memory budget.", labels=["budget"])
        limit = GaugeMetricFamily("smq_memory_limit_bytes", "Each memory budget.", labels=["budget"])
        for name, (taken, whole) in (("producers", memory.primary()), ("replication", memory.granted())):
            used.add_metric([name], taken)
            limit.add_metric([name], whole)
        yield from (used, limit)
        silent = GaugeMetricFamily("smq_silent_followers", "Followers that owe an answer for 500 ms or more.")
        silent.add_metric([], len(self._holdings.silent()))
        yield silent


def register(registry: CollectorRegistry, holdings: Holdings) -> None:
    registry.register(SegmentCollector(holdings))
