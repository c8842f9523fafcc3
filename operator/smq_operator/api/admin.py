"""The admin API: topics, brokers, decisions, and manual requests."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass

import structlog
from google.protobuf.empty_pb2 import Empty

from smq_core.errors import Conflict, InvalidRequest, NoBrokers, SpecRejected, StoreUnavailable, Unavailable
from smq_core.kafka_topics.names import own_name
from smq_core.model.entities import SECOND, Liveness, Micros, Topic
from smq_core.model.names import full_topic_name
from smq_core.model.segment_action import SegmentAction
from smq_core.model.segment_changes import SegmentChange
from smq_core.reconcile.kafka_retention import shown_name
from smq_core.reconcile.retention import Removal
from smq_operator.api.access.call_subjects import parsed_manifest
from smq_operator.api.pages import page_of
from smq_operator.api.rpc_errors import unary_handler
from smq_operator.api.topic_changes import alter_topic, check_request
from smq_operator.brokers.registry import Broker, BrokerRegistry
from smq_operator.cleanup.filer_clock import SKEW_TOLERANCE_US, FilerClock
from smq_operator.cleanup.garbage_collection import GarbageCollector
from smq_operator.cleanup.topic_deletion import TopicDeletionManager
from smq_operator.cleanup.trim import TrimRequest
from smq_operator.platform_port import AppliedManifest, Platform, manifest_of
from smq_operator.reconcile.decision_log import DecisionLog
from smq_operator.reconcile.manual_requests import LAYOUT_WRITE_TIMEOUT_SECONDS, ManualRequests, wait_until_written
from smq_operator.reconcile.topic_recovery import TopicRecovery
from smq_operator.reconcile.topic_sync import TopicSync
from smq_operator.reconcile.topics.adoption import kafka_name_taken, retire
from smq_operator.reconcile.topics.directory import TopicDirectory
from smq_operator.reconcile.topics.managed_topic import ManagedTopic
from smq_operator.reconcile.work_queue import WorkQueue
from smq_operator.runtime.clock import Clock
from smq_operator.runtime.problems import LeaderProblems
from smq_operator.runtime.readiness import Readiness
from smq_operator.runtime.store_pool import StorePool
from smq_operator.status.health import HealthIssues, HealthMonitor
from smq_operator.status.topic_conditions import Commands, topic_conditions
from smq_operator.status.topic_snapshot import TopicSnapshot, snapshot_of
from smq_proto.enums import APPLY_RESULT, BROKER_STATE, DECISION_ACTION, SEGMENT_ACTION
from smq_proto.v1 import admin_pb2
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import columns_from_pb, layout_to_pb, schema_to_pb, topic_to_pb
from smq_storage.catalog.stored_pins import list_pins
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.topic_manifests.parser import TopicManifest, check_change, to_manifest
from smq_storage.topic_manifests.topic_settings import manifest_changes, settings_of

log = structlog.get_logger(__name__)

# How long a deletion waits for a topic that this leader has not read yet.
ADOPTION_TIMEOUT_SECONDS = 3.0
# Less than the timeout of clients, so that they get the reason why segments are not sealed yet.
SEAL_WAIT_SECONDS = 8.0
# Brokers report each second. Less than the timeout of clients, so that they get the reason.
DRAIN_REPORT_TIMEOUT_SECONDS = 5.0
DRAIN_REPORT_CHECK_SECONDS = 0.05

SMQ = Commands(
    restore="bring one back",
    accept_loss=lambda namespace, segment: f"`smq segment accept-loss {_short_name(namespace, segment)}`",
    resume=lambda namespace, topic: f"run `smq topic resume-scaling {_short_name(namespace, topic)}`",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminService:
    """Topics (apply, alter, export, delete, pause scaling), the lists, changes of segments and brokers, AcceptLoss.

    ``max_pin_age`` is in microseconds.
    """

    readiness: Readiness
    platform: Platform
    topics: TopicDirectory
    sync: TopicSync
    registry: BrokerRegistry
    decisions: DecisionLog
    requests: ManualRequests
    topic_deletions: TopicDeletionManager
    health: HealthMonitor
    queue: WorkQueue
    store: StorePool
    problems: LeaderProblems
    clock: Clock
    garbage_collector: GarbageCollector
    filer_clock: FilerClock
    max_pin_age: Micros
    recovery: TopicRecovery

    @unary_handler
    async def ApplyTopic(self, request: admin_pb2.ApplyTopicRequest) -> admin_pb2.ApplyTopicReply:
        document = await parsed_manifest(request)
        desired = document.topic
        known = self.topics.get(desired.full_name)
        if request.must_be_new and (known is not None or not self.topics.synced):
            raise Conflict(f"topic {desired.full_name} is there already, or is still being loaded by a new leader")
        if known is not None and known.topic is not None:
            check_change(known.topic.spec, desired.spec, known.newest_schema)
        _check_kafka_name(desired, self.topics)
        applied = await self.platform.apply(document, request.preview)
        if not request.preview:
            managed = await self.sync.adopted(applied.topic)
            if managed.rejection is not None:
                raise InvalidRequest(f"topic {applied.topic}: {managed.rejection}")
        # Writing a manifest may take most of a second, too.
        return await asyncio.to_thread(_applied_message, applied)

    @unary_handler
    async def AlterTopic(self, request: admin_pb2.AlterTopicRequest) -> admin_pb2.AlterTopicReply:
        check_request(request)
        change = await alter_topic(
            self.topics.topic(request.topic),
            columns_from_pb(request.columns),
            request.schema_version,
            request.settings,
            self.platform,
            self.sync,
            self.queue,
            preview=request.preview,
        )
        changes = await asyncio.to_thread(_change_messages, change.before, change.after)
        return admin_pb2.AlterTopicReply(schema=schema_to_pb(change.schema), changes=changes)

    @unary_handler
    async def ExportTopic(self, request: admin_pb2.ExportTopicRequest) -> admin_pb2.ExportTopicReply:
        return await asyncio.to_thread(_exported_message, manifest_of(self.topics.topic(request.topic).desired))

    @unary_handler
    async def DeleteTopic(self, request: admin_pb2.DeleteTopicRequest) -> Empty:
        """Returns when every segment is sealed. From then on no broker acks a message of this topic."""
        topic_deletions = self.topic_deletions
        name = full_topic_name(request.topic)
        pending_uid = topic_deletions.uid_of(name)
        if pending_uid is not None and name not in self.topics:
            await topic_deletions.wait_until_sealed(pending_uid, SEAL_WAIT_SECONDS)
            return Empty()
        if name not in self.topics and not topic_deletions.has_synced:
            raise Unavailable(
                "the new leader is still loading the topics that are being deleted: try again in a few seconds"
            )
        requested_at = self.clock()
        topic = await self._topic_to_delete(request.topic)
        # The filer first: if that fails, nothing was changed, and the deletion can be repeated.
        await self.store.run(retire, topic.name, topic.uid, RetryPolicy(5.0), self.clock())
        await self.platform.delete(topic.name)
        self.sync.sync()
        topic_deletions.start(topic.name, topic.uid)
        await topic_deletions.wait_until_sealed(topic.uid, SEAL_WAIT_SECONDS - (self.clock() - requested_at) / SECOND)
        return Empty()

    async def _topic_to_delete(self, name: str) -> Topic:
        """The topic as the filer has it. A new leader may not have read it yet although brokers host its segments."""
        managed = self.topics.topic(name)
        if managed.topic is None:
            with suppress(StoreUnavailable):
                managed = await self.sync.adopted(managed.name, ADOPTION_TIMEOUT_SECONDS)
        if managed.topic is None:
            raise StoreUnavailable(
                f"topic {managed.name} is not deleted, and nothing was changed: this leader could not read the topic's "
                f"state from the filer ({managed.problem or 'the filer does not respond'}). Try again"
            )
        return managed.topic

    @unary_handler
    async def TrimTopic(self, request: admin_pb2.TrimTopicRequest) -> admin_pb2.TrimTopicReply:
        managed = self.topics.topic(request.topic)
        if managed.topic is None or managed.layout is None:
            raise Unavailable(f"the leader has not read topic {managed.name} from the filer yet: try again")
        if request.before > self.clock() + SKEW_TOLERANCE_US:  # "now" is that of the client's clock
            raise InvalidRequest("a topic is trimmed before a time that has passed, and this one has not")
        if request.before < 0:
            raise InvalidRequest("a topic is trimmed before a time since 1970, in microseconds")
        wanted = TrimRequest(request.before, request.preview, request.skip_unread)
        done = await self.garbage_collector.trim(managed, managed.topic, wanted)
        removed = [
            admin_pb2.TrimTopicReply.Removed(
                segment=it.segment.name, messages=it.segment.end, bytes=it.segment.bytes, unread=_unread(it)
            )
            for it in done.removals
        ]
        kept = [admin_pb2.TrimTopicReply.Kept(segment=name, reason=reason) for name, reason in done.kept.items()]
        return admin_pb2.TrimTopicReply(removed=removed, kept=kept, more=done.more)

    @unary_handler
    async def RecoverTopic(self, request: admin_pb2.RecoverTopicRequest) -> admin_pb2.RecoverTopicReply:
        report = await self.recovery.recover(request.topic, preview=request.preview, accept_loss=request.accept_loss)
        self.queue.enqueue(self.topics.topic(request.topic))
        return admin_pb2.RecoverTopicReply(found=report.found, writes=report.writes, unknown=report.unknown)

    @unary_handler
    async def PauseScaling(self, request: admin_pb2.PauseScalingRequest) -> Empty:
        managed = self.topics.topic(request.topic)
        await self.platform.set_paused(managed.name, request.paused)
        self.sync.sync()
        self.queue.enqueue(managed)
        return Empty()

    @unary_handler
    async def ListTopics(self, request: admin_pb2.ListTopicsRequest) -> admin_pb2.TopicList:
        after = request.page_token
        topics, next_page = page_of(
            (name, _topic_message(managed, self.health.issues(name)))
            for name, managed in sorted(self.topics.items())
            if name > after
        )
        reply = admin_pb2.TopicList(topics=topics, next_page_token=next_page)
        if not after:
            for found in (self.platform.problems(), self.problems.all()):
                reply.problems.extend(admin_pb2.TopicList.Problem(where=p.where, message=p.message) for p in found)
        return reply

    @unary_handler
    async def ListBrokers(self, request: admin_pb2.ListBrokersRequest) -> admin_pb2.BrokerList:
        now, after = self.clock(), request.page_token
        brokers, next_page = page_of(
            (broker.replica.broker, _broker_message(broker, now))
            for broker in self.registry.all()
            if broker.replica.broker > after
        )
        return admin_pb2.BrokerList(brokers=brokers, next_page_token=next_page)

    @unary_handler
    async def ListPins(self, request: admin_pb2.ListPinsRequest) -> admin_pb2.PinList:
        """The pins as the filer has them now. Those that have expired are listed until retention ends them."""
        managed = self.topics.topic(request.topic)
        if managed.topic is None:
            raise Unavailable(f"the leader has not read topic {managed.name} from the filer yet: try again")
        pins = await self.store.run(list_pins, managed.topic.name, managed.topic.uid)
        now = (await self.filer_clock.read()).filer
        return admin_pb2.PinList(
            pins=[
                admin_pb2.PinList.Pin(
                    id=pin.id,
                    owner=pin.pin.owner,
                    age=max(0, now - pin.created_at),
                    expires_in=pin.expires_at(self.max_pin_age) - now,
                    problem=pin.problem,
                )
                for pin in pins
                if not pin.pin.ended
            ]
        )

    @unary_handler
    async def ListDecisions(self, request: admin_pb2.ListDecisionsRequest) -> admin_pb2.DecisionList:
        return admin_pb2.DecisionList(
            decisions=[
                admin_pb2.DecisionList.Decision(
                    at=d.at,
                    topic=d.topic,
                    action=DECISION_ACTION.value(d.action),
                    segments=d.segments,
                    reason=d.reason,
                )
                for d in self.decisions.recent
            ]
        )

    @unary_handler
    async def ReadStory(self, request: admin_pb2.ReadStoryRequest) -> admin_pb2.Story:
        events = self.topics.topic(request.topic).story.events
        return admin_pb2.Story(events=[admin_pb2.Story.Event(**asdict(event)) for event in events])

    @unary_handler
    async def ChangeSegments(self, request: admin_pb2.ChangeSegmentsRequest) -> Empty:
        """Returns when the layout contains the request, so that any later leader continues it."""
        wanted = SegmentChange(
            SegmentAction(SEGMENT_ACTION.word(request.action)), tuple(request.segments), tuple(request.boundaries)
        )
        wanted = self.requests.submit(request.topic, wanted)
        await wait_until_written(self.topics.topic(request.topic), wanted)
        return Empty()

    @unary_handler
    async def DrainBroker(self, request: admin_pb2.DrainBrokerRequest) -> Empty:
        """Returns when the broker reports that it drains, so that any later leader continues it."""
        living = self._living(request.broker)
        others = [b for b in self.registry.alive(self.clock()) if b not in living and not b.draining]
        if not others:
            raise NoBrokers(
                f"cannot drain {request.broker}: no other broker is available to take over its segments. "
                "Start another broker first"
            )
        for broker in living:
            broker.draining = True
            log.info("broker.drain", broker=request.broker, incarnation=broker.replica.incarnation)
        self.queue.enqueue()
        try:
            async with asyncio.timeout(DRAIN_REPORT_TIMEOUT_SECONDS):
                while any(it.terminated is None and not it.status.draining for it in living):
                    await asyncio.sleep(DRAIN_REPORT_CHECK_SECONDS)
        except TimeoutError:
            raise Unavailable(
                f"{request.broker} has not confirmed that it drains: this leader drains it, but after a leader change "
                "the command has to be run again"
            ) from None
        return Empty()

    @unary_handler
    async def UndrainBroker(self, request: admin_pb2.UndrainBrokerRequest) -> Empty:
        """A process that has begun to drain never takes segments again, so it is replaced by a new one."""
        if not any(broker.draining for broker in self._living(request.broker)):
            raise InvalidRequest(f"broker {request.broker} does not drain: `smq broker list` shows the state of each")
        self.platform.restart_broker(request.broker)
        log.info("broker.undrain", broker=request.broker)
        return Empty()

    def _living(self, name: str) -> list[Broker]:
        """The processes of this name that may run. Raises InvalidRequest if there is none."""
        living = [b for b in self.registry.named(name) if b.terminated is None]
        if not living:
            known = ", ".join(sorted({b.replica.broker for b in self.registry.alive(self.clock())})) or "none"
            raise InvalidRequest(f"there is no broker {name} (known brokers: {known})")
        return living

    @unary_handler
    async def AcceptLoss(self, request: admin_pb2.AcceptLossRequest) -> Empty:
        segment = self.requests.accept_loss(request.topic, request.segment)
        managed = self.topics.topic(request.topic)
        try:
            async with asyncio.timeout(LAYOUT_WRITE_TIMEOUT_SECONDS):
                while managed.layout is None or (
                    segment in managed.layout and not managed.layout.segment(segment).loss_accepted
                ):
                    await managed.wait_for_change()
        except TimeoutError:
            raise StoreUnavailable(
                f"{segment}: the accepted loss is not recorded yet because the filer does not respond. This leader "
                "keeps trying; run the command again after a leader change"
            ) from None
        return Empty()


def _applied_message(applied: AppliedManifest) -> admin_pb2.ApplyTopicReply:
    return admin_pb2.ApplyTopicReply(
        topic=applied.topic,
        result=APPLY_RESULT.value(applied.result),
        before=to_manifest(applied.before) if applied.before is not None else "",
        after=to_manifest(applied.after),
        changes=_change_messages(applied.before, applied.after),
    )


def _exported_message(manifest: TopicManifest) -> admin_pb2.ExportTopicReply:
    return admin_pb2.ExportTopicReply(
        manifest=to_manifest(manifest),
        settings=[
            admin_pb2.ExportTopicReply.Setting(field=it.field, value=it.value, is_default=it.is_default)
            for it in settings_of(manifest.spec)
        ],
    )


def _change_messages(before: TopicManifest | None, after: TopicManifest) -> list[admin_pb2.TopicChange]:
    changes = manifest_changes(before, after) if before is not None else []
    return [admin_pb2.TopicChange(text=change.text, risk=change.risk) for change in changes]


def _check_kafka_name(desired: TopicManifest, topics: Mapping[str, ManagedTopic]) -> None:
    """Raises SpecRejected if Kafka's clients call another topic so. Otherwise that is seen when it is adopted."""
    name = desired.spec.kafka_name
    if name is None:
        return
    for full, other in topics.items():
        if full != desired.full_name and name == (other.desired.spec.kafka_name or own_name(full)):
            raise SpecRejected(kafka_name_taken(name, full), field="spec.kafka.name")


def _broker_message(broker: Broker, now: int) -> admin_pb2.BrokerList.Broker:
    alive = broker.liveness(now)
    state = "draining" if broker.draining and alive is Liveness.ALIVE else alive.value
    return admin_pb2.BrokerList.Broker(
        name=broker.replica.broker,
        incarnation=broker.replica.incarnation,
        address=broker.replica.address,
        state=BROKER_STATE.value(state),
        status=broker.status,
        ended=(broker.cause or broker.terminated or "") if broker.has_reported else "",
        ended_at=broker.ended_at,
        kafka_address=broker.kafka_address,
    )


def _topic_message(managed: ManagedTopic, issues: HealthIssues) -> admin_pb2.TopicList.Topic:
    rates, ends = managed.rates(), managed.readable_ends()
    return admin_pb2.TopicList.Topic(
        info=topic_to_pb(managed.topic, managed.newest_schema)
        if managed.topic is not None
        else pb.TopicInfo(name=managed.name),
        layout=layout_to_pb(managed.layout) if managed.layout is not None else None,
        messages_per_second=rates.messages,
        bytes_per_second=rates.bytes,
        conditions=condition_messages(snapshot_of(managed, issues)),
        sealed_segments=len(managed.index.sealed),
        paused=managed.desired.paused,
        ends=ends,
        messages=managed.message_count(ends),
    )


def condition_messages(snapshot: TopicSnapshot) -> list[admin_pb2.Condition]:
    """All conditions of the topic."""
    return [
        admin_pb2.Condition(type=c.type, status=c.status, reason=c.reason, message=c.message)
        for c in topic_conditions(snapshot, SMQ)
    ]


def _unread(removal: Removal) -> dict[str, int]:
    """The groups that skip messages, each with the offset from which on that number of them ends the segment."""
    end = removal.segment.end
    return {
        **removal.unread,
        **{shown_name(group): max(0, end - messages) for group, messages in removal.kafka_unread.items()},
    }


def _short_name(namespace: str, name: str) -> str:
    """The name as the command line shows it: without the namespace ``default``."""
    return name if namespace == "default" else f"{namespace}/{name}"
