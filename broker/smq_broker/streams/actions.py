"""Flight actions: the requests of the leader and of clients. Bodies are the messages of data.proto."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import structlog
from google.protobuf.message import Message

from smq_broker.access.callers import Caller
from smq_broker.leader_client.locator import Locator
from smq_broker.leader_client.reports import BrokerStatusReporter
from smq_broker.producers.claims import ProducerClaims
from smq_broker.recovery.recovered_logs import RecoveredLogs
from smq_broker.segments.hosted_segment import HostedSegment
from smq_broker.segments.opening import SegmentOpener
from smq_broker.segments.registry import SegmentRegistry
from smq_broker.segments.sealing import SegmentSealer
from smq_broker.segments.stored_layouts import StoredLayouts
from smq_core.access.broker_calls import GRANTS
from smq_core.errors import InvalidRequest, NotHosted, UnknownTopic
from smq_core.model.entities import TopicSchema
from smq_core.model.names import full_topic_name, shown
from smq_proto.flight import parse
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import (
    check_protocol,
    outcome_to_pb,
    segment_from_pb,
    segment_to_pb,
    topic_from_pb,
    topic_to_pb,
)

# In place of the uid of a topic that is not there. No grant is for it.
NO_TOPIC = ""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ActionCall:
    """``body`` is the request as it came. ``caller`` has been admitted to the action."""

    body: object
    is_cancelled: Callable[[], bool]
    caller: Caller


Action = Callable[[ActionCall], Message | None]


class Actions:
    """``run`` gives the answer's body, or None. Raises SmqError."""

    def __init__(
        self,
        registry: SegmentRegistry,
        *,
        opener: SegmentOpener,
        sealer: SegmentSealer,
        reporter: BrokerStatusReporter,
        locator: Locator,
        claims: ProducerClaims,
        recovered: RecoveredLogs,
        layouts: StoredLayouts,
    ) -> None:
        self._registry = registry
        self._opener = opener
        self._sealer = sealer
        self._reporter = reporter
        self._locator = locator
        self._claims = claims
        self._recovered = recovered
        self._layouts = layouts
        self._by_name: dict[str, tuple[Action, str]] = {
            "open": (self._open, "OpenSegment -> OpenedSegment"),
            "seal": (self._seal, "SealSegment -> SealOutcome"),
            "outcome": (self._outcome, "OutcomeRequest -> SealOutcome"),
            "claim": (self._claim, "ClaimProducer -> ClaimedProducer"),
            "locate": (self._locate, "LocateRequest -> LocateReply"),
            "status": (self._status, "nothing -> BrokerStatus"),
            "segments": (self._segments, "HostedSegmentsRequest -> HostedSegments"),
            GRANTS: (self._grants, "PresentGrants -> nothing"),
        }

    def run(self, name: str, call: ActionCall) -> Message | None:
        return self._by_name[name][0](call)

    def check_name(self, name: str) -> None:
        """Raises InvalidRequest if there is no such action."""
        if name not in self._by_name:
            raise InvalidRequest(f"there is no action {shown(name)}; there are {', '.join(self._by_name)}")

    def known_name(self, name: str) -> str:
        """The action's name for logs: one of ours, whatever a client sends."""
        return name if name in self._by_name else "unknown action"

    def descriptions(self) -> Iterable[tuple[str, str]]:
        return [(name, what) for name, (_, what) in self._by_name.items()]

    def _open(self, call: ActionCall) -> Message:
        request = parse(pb.OpenSegment, call.body)
        check_protocol(request.protocol)
        self._registry.check_incarnation(request.incarnation)
        try:
            topic, segment = topic_from_pb(request.topic), segment_from_pb(request.segment)
            self._layouts.check_open(topic, segment)
            hosted = self._opener.open(topic, segment, request.max_upload_age)
        except (ValueError, KeyError) as error:
            raise InvalidRequest(f"not a segment to open: {error}") from error
        return pb.OpenedSegment(credit=hosted.memory.credit)

    def _seal(self, call: ActionCall) -> Message | None:
        request = parse(pb.SealSegment, call.body)
        check_protocol(request.protocol)
        if request.only_flush:
            hosted = self._registry.find(request.segment, request.uid, request.incarnation)
            self._layouts.check_seal(hosted.topic.name, hosted.topic.uid, hosted.name)
            self._sealer.flush_ahead(hosted)
            return None
        successors = [segment_from_pb(s) for s in request.successors]
        try:
            hosted = self._find_to_seal(request)
        except NotHosted:
            log.info("seal.not_hosted", segment=request.segment, topic=request.topic)
            raise
        outcome = self._sealer.seal(hosted, successors, request.reason, call.is_cancelled)
        # The leader needs the end and the loss. Thousands of producers would only make the reply large.
        return outcome_to_pb(outcome, only="", successors=hosted.successors)

    def _find_to_seal(self, request: pb.SealSegment) -> HostedSegment:
        """The segment of this incarnation, or of a former one whose journal this process holds.

        Raises Unavailable if the stored layout plans no seal of it.
        """
        if not self._recovered.holds(request.incarnation):
            self._registry.check_incarnation(request.incarnation)
            return self._find_own(request)
        recovered = self._recovered.find(request.incarnation, request.uid, request.segment)
        self._layouts.check_seal(recovered.topic.name, recovered.topic.uid, recovered.name)
        if recovered.machine.outcome is None:
            if request.accept_incomplete:
                recovered.accept_incomplete(request.known_watermark)
            else:
                recovered.check_complete(request.known_watermark)
        return recovered

    def _find_own(self, request: pb.SealSegment) -> HostedSegment:
        hosted = self._registry.hosted(request.uid, request.segment)
        if hosted is not None:
            self._layouts.check_seal(hosted.topic.name, hosted.topic.uid, hosted.name)
            return hosted
        # The layout that was read may be an old one. Only a refusal for good may say that this broker has nothing.
        self._layouts.check_planned_seal(full_topic_name(request.topic), request.uid, request.segment)
        return self._registry.get_or_refuse(request.uid, request.segment)

    def _outcome(self, call: ActionCall) -> Message:
        request = parse(pb.OutcomeRequest, call.body)
        topic = full_topic_name(request.topic)
        call.caller.require(request.uid, topic)
        if self._registry.find_sealed(request.uid, request.segment) is None:
            self._layouts.check_given(topic, request.uid, request.segment)
        outcome, successors = self._sealer.outcome(topic, request.uid, request.segment)
        return outcome_to_pb(outcome, only=request.producer or None, successors=successors)

    def _claim(self, call: ActionCall) -> Message:
        request = parse(pb.ClaimProducer, call.body)
        topic = full_topic_name(request.topic)
        call.caller.require(request.uid, topic)
        with call.caller.recorded():
            return self._claims.claim(topic, request, call.caller.claimant(request.uid, topic))

    def _locate(self, call: ActionCall) -> Message:
        topic = full_topic_name(parse(pb.LocateRequest, call.body).topic)
        try:
            found = self._locator.locate(topic)
        except UnknownTopic:
            call.caller.require(NO_TOPIC, topic)  # who has no right to a topic does not learn whether there is one
            raise
        call.caller.require(found.topic.uid, topic)
        return found

    def _status(self, call: ActionCall) -> Message:
        return call.caller.visible(self._reporter.status())

    def _grants(self, call: ActionCall) -> None:
        call.caller.present(parse(pb.PresentGrants, call.body))

    def _segments(self, call: ActionCall) -> Message:
        """From them the leader rebuilds a layout that was lost."""
        request = parse(pb.HostedSegmentsRequest, call.body)
        hosted = [it for it in (*self._registry.all(), *self._recovered.unsealed()) if it.topic.uid == request.uid]
        return pb.HostedSegments(
            segments=[
                pb.OpenSegment(
                    topic=topic_to_pb(it.topic, TopicSchema(it.segment.schema_version, it.topic.spec.schema)),
                    segment=segment_to_pb(it.segment),
                )
                for it in hosted
            ]
        )
