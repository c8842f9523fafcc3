"""Segment metrics. They are read from the segments when Prometheus scrapes, so that they cost nothing per batch."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from smq_broker.memory.accounting import MemoryAccounting
from smq_broker.segments.registry import SegmentRegistry

_ROLES = ("primary", "follower")


class SegmentCollector(Collector):
    """Sums over all segments by role; never one series per segment."""

    def __init__(self, registry: SegmentRegistry, memory: MemoryAccounting) -> None:
        self._registry = registry
        self._memory = memory

    def collect(self) -> Iterable[Metric]:
        segments = GaugeMetricFamily("smq_segments", "Hosted segments.", labels=["role", "state"])
        tail = GaugeMetricFamily("smq_tail_bytes", "Bytes of tails in memory.", labels=["role"])
        messages = CounterMetricFamily("smq_messages", "Messages received.", labels=["role"])
        size = CounterMetricFamily("smq_bytes", "Bytes received.", labels=["role"])
        batches = CounterMetricFamily("smq_batches", "Batches received.", labels=["role"])
        counted: dict[tuple[str, str], int] = {}
        hosted = self._registry.all()
        for role in _ROLES:
            of_role = [h for h in hosted if h.is_primary == (role == "primary")]
            released = self._registry.released_totals[role]
            for h in of_role:
                key = (role, h.machine.state.value)
                counted[key] = counted.get(key, 0) + 1
            tail.add_metric([role], sum(h.machine.tail_bytes for h in of_role))
            messages.add_metric([role], released.messages + sum(h.machine.counters.messages for h in of_role))
            size.add_metric([role], released.bytes + sum(h.bytes_in for h in of_role))
            batches.add_metric([role], released.batches + sum(h.machine.counters.batches for h in of_role))
        for labels, number in sorted(counted.items()):
            segments.add_metric(labels, number)
        yield from (segments, tail, messages, size, batches)
        yield from self._memory_usage()

    def _memory_usage(self) -> Iterable[Metric]:
        used = GaugeMetricFamily("smq_memory_used_bytes", "Used bytes of each memory budget.", labels=["budget"])
        limit = GaugeMetricFamily("smq_memory_limit_bytes", "Size of each memory budget.", labels=["budget"])
        for name, (used_bytes, limit_bytes) in self._memory.usage().items():
            used.add_metric([name], used_bytes)
            limit.add_metric([name], limit_bytes)
        yield from (used, limit)
        unresponsive = GaugeMetricFamily(
            "smq_unresponsive_followers", "Followers with a request unanswered for at least 500 ms."
        )
        unresponsive.add_metric([], len(self._registry.unresponsive_followers()))
        yield unresponsive
