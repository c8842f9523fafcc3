"""Prometheus metrics of the leader, read from its state when somebody asks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector as PrometheusCollector

from smq_operator.collect import Collector
from smq_operator.desk import Desk


class _LeaderCollector(PrometheusCollector):
    def __init__(self, desk: Desk, collector: Collector) -> None:
        self._desk = desk
        self._collector = collector

    def collect(self) -> Iterable[Metric]:
        loop, now = self._desk.loop, self._desk.loop.now()
        yield CounterMetricFamily("smq_leader_rounds", "Rounds of the leader's loop.", value=loop.rounds)
        states: Counter[str] = Counter()
        for broker in loop.registry.all():
            draining = broker.draining and broker.gone is None
            states["draining" if draining else broker.liveness(now).value] += 1
        brokers = GaugeMetricFamily("smq_leader_brokers", "Known broker incarnations.", labels=["state"])
        for state in ("alive", "suspect", "gone", "draining"):
            brokers.add_metric([state], states[state])
        yield brokers
        yield from self._topics()
        yield from self._collecting()

    def _collecting(self) -> Iterator[Metric]:
        it = self._collector
        removed = CounterMetricFamily(
            "smq_topic_removed_segments", "Segments that retention removed.", labels=["topic"]
        )
        size = CounterMetricFamily("smq_topic_removed_bytes", "Bytes of those segments.", labels=["topic"])
        held = GaugeMetricFamily(
            "smq_topic_retention_held_segments", "Segments beyond retention that groups still read.", labels=["topic"]
        )
        for name, run in sorted(self._desk.loop.topics.items()):
            removed.add_metric([name], it.removed[name])
            size.add_metric([name], it.removed_bytes[name])
            held.add_metric([name], len(run.held))
        files = CounterMetricFamily("smq_leader_collected_files", "Files deleted, by what they were.", labels=["kind"])
        for kind in ("removed", "deleted topic", "stray", "upload"):
            files.add_metric([kind], it.files[kind])
        failures = CounterMetricFamily("smq_leader_collect_failures", "Collecting that failed.", value=it.failures)
        yield from (removed, size, held, files, failures)

    def _topics(self) -> Iterator[Metric]:
        segments = GaugeMetricFamily("smq_topic_segments", "Segments by phase.", labels=["topic", "phase"])
        blocked = GaugeMetricFamily("smq_topic_seals_blocked", "Seals that wait for replicas.", labels=["topic"])
        messages = GaugeMetricFamily("smq_topic_messages_per_second", "Messages written.", labels=["topic"])
        size = GaugeMetricFamily("smq_topic_bytes_per_second", "Bytes written.", labels=["topic"])
        lost = GaugeMetricFamily("smq_topic_lost_messages", "Acked messages reported as lost.", labels=["topic"])
        for name, run in sorted(self._desk.loop.topics.items()):
            phases = Counter(s.phase.value for s in run.layout.segments) if run.layout is not None else Counter()
            for phase in ("pending", "open", "sealing"):
                segments.add_metric([name, phase], phases[phase])
            segments.add_metric([name, "sealed"], len(run.sealed))
            blocked.add_metric([name], len(run.leader.blocked) if run.leader is not None else 0)
            rates = run.rates()
            messages.add_metric([name], rates.messages)
            size.add_metric([name], rates.bytes)
            gone = sum((e.lost_to or 0) - (e.lost_from or 0) for e in run.sealed.values() if e.lost_from is not None)
            lost.add_metric([name], gone)
        yield from (segments, blocked, messages, size, lost)
        decided = CounterMetricFamily("smq_leader_decisions", "Decisions by action.", labels=["topic", "action"])
        for (topic, action), count in sorted(self._desk.loop.decided.items()):
            decided.add_metric([topic, action], count)
        yield decided


class Metrics:
    def __init__(self, desk: Desk, collector: Collector) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_LeaderCollector(desk, collector))

    def exposition(self) -> tuple[bytes, str]:
        return generate_latest(self._registry), CONTENT_TYPE_LATEST
