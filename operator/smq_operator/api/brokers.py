"""The service that brokers call: their reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from smq_core.errors import InvalidRequest
from smq_core.model.entities import Segment
from smq_core.reconcile.answers import ReplicaFenced, ReplicaOpened
from smq_core.scaling.segment_load import TrafficCounters
from smq_operator.api.report_checks import (
    check_sender,
    check_size,
    drop_foreign_segments,
    named_replicas,
    require_capacity,
)
from smq_operator.api.rpc_errors import unary_handler
from smq_operator.brokers.connectivity import BrokerConnectivity
from smq_operator.brokers.liveness import LivenessProbes
from smq_operator.brokers.registry import ACCEPTING_STATES, FENCED_STATES, Broker, BrokerRegistry
from smq_operator.cleanup.stale_segments import StaleSegments
from smq_operator.cleanup.topic_deletion import TopicDeletionManager
from smq_operator.reconcile.broker_assignments import BrokerAssignments
from smq_operator.reconcile.effects import EffectRunner
from smq_operator.reconcile.loss_recorder import LossRecorder
from smq_operator.reconcile.topics.directory import TopicDirectory
from smq_operator.reconcile.topics.managed_topic import ManagedTopic
from smq_operator.reconcile.work_queue import WorkQueue
from smq_operator.runtime.clock import Clock
from smq_operator.runtime.readiness import Readiness
from smq_proto.v1 import brokers_pb2
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import check_protocol

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerService:
    """Report: what a broker hosts, and what it shall do. Its first report registers it."""

    readiness: Readiness
    topics: TopicDirectory
    registry: BrokerRegistry
    assignments: BrokerAssignments
    effects: EffectRunner
    queue: WorkQueue
    liveness_probes: LivenessProbes
    connectivity: BrokerConnectivity
    stale_segments: StaleSegments
    losses: LossRecorder
    topic_deletions: TopicDeletionManager
    clock: Clock
    authorities: Callable[[], str]
    """The id of the set of authorities; empty without security."""

    @unary_handler
    async def Report(self, report: brokers_pb2.BrokerReport) -> brokers_pb2.BrokerReportReply:
        check_protocol(report.protocol)
        check_size(report)
        now = self.clock()
        await self._reject_duplicate_name(report)
        known = self.registry.get(report.incarnation)
        layouts = self.topics.pending_layouts()
        check_sender(report, self.registry, layouts)
        for incarnation in require_capacity(report, self.registry, self.assignments, now):
            self.effects.forget_broker(incarnation)
        foreign = drop_foreign_segments(report, self.topics)
        was = None if known is None else (known.liveness(now), known.draining)
        broker = self.registry.report(report, now, named_replicas(layouts).keys() if report.recovered else ())
        if was != (broker.liveness(now), broker.draining):
            self.queue.enqueue()
        if foreign and not broker.reports_foreign_segments:
            log.warning("report.foreign_segments", broker=report.broker, incarnation=report.incarnation, count=foreign)
        broker.reports_foreign_segments = bool(foreign)
        for segment in report.status.segments:
            managed = self.topics.get(segment.topic)
            if managed is not None and _apply_segment_report(managed, segment, report.incarnation, now):
                self.queue.enqueue(managed)
        self.stale_segments.handle_report(broker, now)
        unrecorded_loss = self.losses.handle_report(broker)
        for incarnation in report.unresponsive:
            self.liveness_probes.report_unresponsive(incarnation, by=report.broker)
        self.connectivity.handle_report(report.incarnation, list(report.unresponsive), now)
        if broker.suspected:
            self.liveness_probes.report_unresponsive(report.incarnation, by=report.broker)
        assigned = self.assignments.segments_of(report.incarnation)
        unwritten = any(
            s.primary and s.state == pb.SegmentReport.OPEN and s.end > s.chain_end for s in report.status.segments
        )
        held = (report.incarnation, *report.recovered)
        may_leave = broker.draining and not unwritten and not unrecorded_loss and self._layouts_known(broker)
        may_leave = may_leave and not any(self.assignments.segments_of(incarnation) for incarnation in held)
        may_leave = may_leave and not any(self.topic_deletions.blocks_leaving(incarnation) for incarnation in held)
        others = any(self._is_draining(other) for other in self.registry.all() if other is not broker)
        return brokers_pb2.BrokerReportReply(
            may_leave=may_leave,
            assigned=assigned,
            others_drain=others,
            drain=broker.draining,
            leader=self.registry.leader,
            answer=self.registry.next_answer(),
            authorities=self.authorities(),
            kafka_listeners=self._kafka_listeners(now) if report.kafka_address else (),
        )

    def _kafka_listeners(self, now: int) -> list[brokers_pb2.KafkaListener]:
        return [
            brokers_pb2.KafkaListener(incarnation=it.replica.incarnation, address=it.kafka_address)
            for it in self.registry.alive(now)
            if it.kafka_address
        ]

    def _is_draining(self, broker: Broker) -> bool:
        """Whether segments still have to move from it. A broker without segments has finished draining."""
        if not broker.draining or broker.terminated is not None:
            return False
        return bool(self.assignments.segments_of(broker.replica.incarnation)) or not self._layouts_known(broker)

    def _layouts_known(self, broker: Broker) -> bool:
        """Whether the leader knows every layout that may assign a segment with messages to this broker."""
        hosted = {segment.topic for segment in broker.status.segments}
        # A report does not say which topics the journals of former incarnations belong to.
        return self.topics.layouts_known_for(set(self.topics) if broker.recovered else hosted)

    async def _reject_duplicate_name(self, report: brokers_pb2.BrokerReport) -> None:
        """Rejects the second of two living processes with one name, which would make each other look gone."""
        registry = self.registry
        if registry.get(report.incarnation) is not None:
            return
        for other in registry.alive(self.clock()):
            same = other.replica.broker == report.broker
            if same and await self.liveness_probes.probe(other):
                raise InvalidRequest(
                    f"a broker named {report.broker} is alive at {other.replica.address} already: "
                    "start this one under a name of its own (--name)"
                )


def _apply_segment_report(managed: ManagedTopic, report: pb.SegmentReport, incarnation: str, now: int) -> bool:
    """Applies a report of one segment. True if the loop should reconcile the topic now."""
    reconciler, name = managed.reconciler, report.segment
    layout = reconciler.layout if reconciler is not None else None
    if reconciler is None or layout is None or name not in layout:
        return False
    if report.uid != reconciler.topic.uid:
        return False  # it is of an earlier topic of that name
    segment: Segment = layout.segment(name)
    ours = any(replica.incarnation == incarnation for replica in segment.replicas)
    # Reports of other brokers do not count, because a wrong watermark would later be reported as a loss.
    if ours and 0 <= report.watermark <= report.end:
        reconciler.observe_watermark(name, report.watermark)
    if segment.primary.incarnation == incarnation:
        counted = TrafficCounters(report.messages, report.bytes, report.batches, tuple(report.histogram))
        known = reconciler.load.invalid_reports.get(name)
        reconciler.load.observe(name, counted, now)
        if reconciler.load.changed_at == now:
            managed.mark_active(now)
        why = reconciler.load.invalid_reports.get(name)
        if why is not None and known is None:
            broker = segment.primary.broker
            log.warning("report.rejected", topic=managed.name, segment=name, broker=broker, message=why)
    if ours and not segment.successors and report.state in FENCED_STATES:
        if reconciler.has_refused(name, incarnation):
            return False
        reconciler.handle(ReplicaFenced(name, incarnation), now)
        return True
    if ours and not reconciler.has_opened(name, incarnation) and report.state in ACCEPTING_STATES:
        reconciler.handle(ReplicaOpened(name, incarnation), now)
        return True
    return False
