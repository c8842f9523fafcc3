"""Prometheus metrics of the leader, read from its state at each scrape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector as PrometheusCollector

from smq_core.access.modes import SecurityMode
from smq_core.model.entities import Liveness, Phase
from smq_operator.brokers.registry import BrokerRegistry
from smq_operator.cleanup.filer_clock import FilerClock
from smq_operator.cleanup.garbage_collection import GarbageCollector
from smq_operator.compaction.small_file_merger import SmallFileMerger
from smq_operator.file_lists.namer import FileListNamer
from smq_operator.groups.group_lags import GroupLags
from smq_operator.groups.kafka_lag_samples import KafkaLagSamples
from smq_operator.reconcile.decision_log import DecisionLog
from smq_operator.reconcile.loop import LeaderLoop
from smq_operator.reconcile.topics.directory import TopicDirectory
from smq_operator.runtime.clock import Clock
from smq_operator.runtime.task_runner import TaskRunner
from smq_operator.security.access.audit import DenialReason
from smq_operator.security.leader_security import LeaderSecurity
from smq_operator.status.health import FILER

# Kinds of groups, as `smq group list` shows them.
OWN_GROUPS, KAFKA_GROUPS = "smq", "Kafka"


class _LeaderMetrics(PrometheusCollector):
    def __init__(
        self,
        *,
        topics: TopicDirectory,
        registry: BrokerRegistry,
        decisions: DecisionLog,
        loop: LeaderLoop,
        filer_clock: FilerClock,
        garbage_collector: GarbageCollector,
        file_lists: FileListNamer,
        merger: SmallFileMerger,
        group_lags: GroupLags,
        kafka_lags: KafkaLagSamples,
        tasks: TaskRunner,
        clock: Clock,
        mode: SecurityMode,
        security: LeaderSecurity | None,
    ) -> None:
        self._mode = mode
        self._security = security
        self._topics = topics
        self._brokers = registry
        self._decisions = decisions
        self._loop = loop
        self._filer_clock = filer_clock
        self._garbage_collector = garbage_collector
        self._file_lists = file_lists
        self._merger = merger
        self._group_lags = group_lags
        self._kafka_lags = kafka_lags
        self._tasks = tasks
        self._now = clock

    def collect(self) -> Iterable[Metric]:
        now = self._now()
        yield CounterMetricFamily(
            "smq_leader_reconciliations", "Rounds of the leader's loop.", value=self._loop.reconciliations
        )
        states: Counter[str] = Counter()
        for broker in self._brokers.all():
            draining = broker.draining and broker.terminated is None
            states["draining" if draining else broker.liveness(now).value] += 1
        brokers = GaugeMetricFamily("smq_leader_brokers", "Known broker incarnations.", labels=["state"])
        for state in (*Liveness, "draining"):
            brokers.add_metric([state], states[state])
        yield brokers
        yield from self._segments()
        yield from self._cleanup()
        yield from self._named_file_lists()
        yield from self._merged_files()
        yield from self._groups()
        failures = CounterMetricFamily(
            "smq_leader_task_failures", "Tasks and callbacks that failed unexpectedly.", labels=["task"]
        )
        for name, count in sorted(self._tasks.failures.items()):
            failures.add_metric([name], count)
        yield failures
        available = not any(problem.where == FILER for problem in self._tasks.problems.all())
        yield GaugeMetricFamily(
            "smq_leader_filer_available",
            "0 if the leader or a broker cannot write to the filer, else 1.",
            value=available,
        )
        documents = GaugeMetricFamily(
            "smq_leader_unreadable_documents", "Documents that are skipped, by kind.", labels=["kind"]
        )
        for kind, count in sorted(self._tasks.problems.kinds().items()):
            documents.add_metric([kind], count)
        yield documents
        yield from self._access()

    def _access(self) -> Iterator[Metric]:
        mode = GaugeMetricFamily(
            "smq_leader_security_mode", "1 for the mode in which this leader runs, 0 for others.", labels=["mode"]
        )
        for it in SecurityMode:
            mode.add_metric([it.value], float(it is self._mode))
        yield mode
        if self._security is None:
            return
        audit, rotation = self._security.access.audit, self._security.authorities.known.rotation
        denied = CounterMetricFamily(
            "smq_leader_access_denied", "Calls that the leader refused to their callers.", labels=["reason"]
        )
        for reason in DenialReason:
            denied.add_metric([reason.value], audit.denied.get(reason, 0))
        yield denied
        calls = CounterMetricFamily(
            "smq_leader_open_calls", "Calls in clear text and without a token, in mode permissive.", labels=["call"]
        )
        for call, count in sorted(audit.open_calls.items()):
            calls.add_metric([call], count)
        yield calls
        yield GaugeMetricFamily(
            "smq_leader_certificate_expiry_timestamp_seconds",
            "When the leader's certificate expires, in seconds since the Unix epoch.",
            value=self._security.certificate.current().expires_at,
        )
        authorities = GaugeMetricFamily(
            "smq_leader_authority_expiry_timestamp_seconds",
            "When the authorities of the release expire, in seconds since the Unix epoch.",
            labels=["authority", "phase"],
        )
        for known in rotation.authorities:
            authorities.add_metric([known.id, known.phase.value], known.expires_at)
        yield authorities

    def _cleanup(self) -> Iterator[Metric]:
        it = self._garbage_collector
        removed = CounterMetricFamily(
            "smq_topic_removed_segments", "Segments that retention removed.", labels=["topic"]
        )
        size = CounterMetricFamily("smq_topic_removed_bytes", "Bytes of those segments.", labels=["topic"])
        retained = GaugeMetricFamily(
            "smq_topic_retention_blocked_segments",
            "Segments beyond retention that groups still read.",
            labels=["topic"],
        )
        publishes = GaugeMetricFamily(
            "smq_topic_unfinished_publishes", "Committed atomic publishes that are not complete.", labels=["topic"]
        )
        publish_age = GaugeMetricFamily(
            "smq_topic_oldest_unfinished_publish_seconds", "The age of the oldest of them.", labels=["topic"]
        )
        pins = GaugeMetricFamily("smq_topic_reader_pins", "Pins of readers that keep files.", labels=["topic"])
        pin_age = GaugeMetricFamily(
            "smq_topic_oldest_reader_pin_seconds", "The age of the oldest of them.", labels=["topic"]
        )
        for name, managed in sorted(self._topics.items()):
            if (pinned := it.pinned.get(name)) is not None:
                pins.add_metric([name], len(pinned.pins))
                pin_age.add_metric([name], pinned.oldest_age / 1e6)
            removed.add_metric([name], it.removed[name])
            size.add_metric([name], it.removed_bytes[name])
            retained.add_metric([name], len(managed.retention_held))
            committed = managed.unfinished_publishes.values()
            publishes.add_metric([name], len(committed))
            publish_age.add_metric([name], (self._now() - min(committed)) / 1e6 if committed else 0)
        files = CounterMetricFamily("smq_leader_deleted_files", "Files deleted, by what they were.", labels=["kind"])
        for kind in ("removed", "deleted_topic", "superseded", "orphan", "file_list", "upload"):
            files.add_metric([kind], it.files[kind])
        failures = CounterMetricFamily("smq_leader_cleanup_failures", "Collecting that failed.", value=it.failures)
        yield from (removed, size, retained, publishes, publish_age, pins, pin_age, files, failures)
        if self._filer_clock.skew_us is not None:
            yield GaugeMetricFamily(
                "smq_leader_clock_skew_seconds",
                "How far the leader's clock is ahead of the filer's.",
                value=self._filer_clock.skew_us / 1e6,
            )

    def _named_file_lists(self) -> Iterator[Metric]:
        unnamed = GaugeMetricFamily(
            "smq_topic_segments_without_file_list", "Sealed segments without a file list.", labels=["topic"]
        )
        for name, managed in sorted(self._topics.items()):
            unnamed.add_metric([name], sum(not entry.file_list for entry in managed.index.sealed.values()))
        named = CounterMetricFamily(
            "smq_leader_file_lists_named", "File lists that were named in an index.", labels=["writer"]
        )
        for writer in ("broker", "leader"):
            named.add_metric([writer], self._file_lists.named[writer])
        failures = CounterMetricFamily(
            "smq_leader_file_list_failures", "Naming that failed.", value=self._file_lists.failures
        )
        yield from (unnamed, named, failures)

    def _merged_files(self) -> Iterator[Metric]:
        it = self._merger
        waiting = GaugeMetricFamily(
            "smq_topic_segments_to_merge", "Sealed segments with small files that are to be merged.", labels=["topic"]
        )
        for name, managed in sorted(self._topics.items()):
            waiting.add_metric([name], it.waiting(managed))
        files = CounterMetricFamily(
            "smq_leader_merged_files", "Small files whose rows are in a merged file now.", value=it.replaced_files
        )
        size = CounterMetricFamily("smq_leader_merged_bytes", "Bytes of those files.", value=it.replaced_bytes)
        writes = CounterMetricFamily("smq_leader_merge_writes", "Files that merges wrote.", value=it.merged_files)
        failures = CounterMetricFamily("smq_leader_merge_failures", "Merging that failed.", value=it.failures)
        yield from (waiting, files, size, writes, failures)

    def _groups(self) -> Iterator[Metric]:
        labels = ["topic", "group", "kind"]
        messages = GaugeMetricFamily(
            "smq_group_lag_messages", "Messages that the group has not committed.", labels=labels
        )
        seconds = GaugeMetricFamily(
            "smq_group_lag_seconds", "About the age of the oldest of them, 0 if there is none.", labels=labels
        )
        members = GaugeMetricFamily("smq_group_members", "Members of the group.", labels=labels)
        count = GaugeMetricFamily("smq_topic_groups", "Groups of the topic.", labels=["topic", "kind"])
        for topic, reports in sorted(self._group_lags.reports.items()):
            count.add_metric([topic, OWN_GROUPS], self._group_lags.counts.get(topic, 0))
            for report in reports:
                of_group = [topic, report.group.name, OWN_GROUPS]
                messages.add_metric(of_group, report.total.messages)
                seconds.add_metric(of_group, report.total.age / 1e6)
                members.add_metric(of_group, len(report.group.members))
        for topic, of_kafka in sorted(self._kafka_lags.reports.items()):
            count.add_metric([topic, KAFKA_GROUPS], self._kafka_lags.counts.get(topic, 0))
            for it in of_kafka:
                messages.add_metric([topic, it.group, KAFKA_GROUPS], it.lag.messages)
                seconds.add_metric([topic, it.group, KAFKA_GROUPS], it.lag.age / 1e6)
        yield from (count, members, messages, seconds)

    def _segments(self) -> Iterator[Metric]:
        segments = GaugeMetricFamily("smq_topic_segments", "Segments by phase.", labels=["topic", "phase"])
        blocked = GaugeMetricFamily("smq_topic_seals_blocked", "Seals that wait for replicas.", labels=["topic"])
        messages = GaugeMetricFamily("smq_topic_messages_per_second", "Messages written.", labels=["topic"])
        size = GaugeMetricFamily("smq_topic_bytes_per_second", "Bytes written.", labels=["topic"])
        lost = GaugeMetricFamily("smq_topic_lost_messages", "Acked messages known to be lost.", labels=["topic"])
        open_ended = GaugeMetricFamily(
            "smq_topic_open_ended_losses",
            "Sealed segments that may have lost more than smq_topic_lost_messages counts.",
            labels=["topic"],
        )
        for name, managed in sorted(self._topics.items()):
            phases = (
                Counter(s.phase.value for s in managed.layout.segments) if managed.layout is not None else Counter()
            )
            for phase in (Phase.PENDING, Phase.OPEN, Phase.SEALING):
                segments.add_metric([name, phase], phases[phase])
            segments.add_metric([name, "sealed"], len(managed.index.sealed))
            blocked.add_metric([name], len(managed.reconciler.blocked) if managed.reconciler is not None else 0)
            rates = managed.rates()
            messages.add_metric([name], rates.messages)
            size.add_metric([name], rates.bytes)
            if managed.index.is_read:  # until then nobody knows, and a 0 would make old losses look new
                ranges = [e.lost for e in managed.index.sealed.values() if e.lost is not None]
                lost.add_metric([name], sum(it.stop - it.start for it in ranges))
                open_ended.add_metric([name], sum(it.at_least for it in ranges))
        yield from (segments, blocked, messages, size, lost, open_ended)
        decision_counts = CounterMetricFamily(
            "smq_leader_decisions", "Decisions by action.", labels=["topic", "action"]
        )
        for (topic, action), count in sorted(self._decisions.counts.items()):
            decision_counts.add_metric([topic, action], count)
        yield decision_counts


class Metrics:
    """The registry that /metrics serves."""

    def __init__(
        self,
        *,
        topics: TopicDirectory,
        registry: BrokerRegistry,
        decisions: DecisionLog,
        loop: LeaderLoop,
        filer_clock: FilerClock,
        garbage_collector: GarbageCollector,
        file_lists: FileListNamer,
        merger: SmallFileMerger,
        group_lags: GroupLags,
        kafka_lags: KafkaLagSamples,
        tasks: TaskRunner,
        clock: Clock,
        mode: SecurityMode = SecurityMode.DISABLED,
        security: LeaderSecurity | None = None,
    ) -> None:
        """``security`` is None in an open release."""
        self._registry = CollectorRegistry()
        self._registry.register(
            _LeaderMetrics(
                topics=topics,
                registry=registry,
                decisions=decisions,
                loop=loop,
                filer_clock=filer_clock,
                garbage_collector=garbage_collector,
                file_lists=file_lists,
                merger=merger,
                group_lags=group_lags,
                kafka_lags=kafka_lags,
                tasks=tasks,
                clock=clock,
                security=security,
                mode=mode,
            )
        )

    def exposition(self) -> tuple[bytes, str]:
        """The metrics as text, and its content type."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST
