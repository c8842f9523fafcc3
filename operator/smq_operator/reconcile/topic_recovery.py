"""Writes a topic's lost ``_layout.json``, ``_current.json`` or ``_topic.json`` anew, on request: `smq topic recover`.

Documents are only created, never replaced. So a file that was restored meanwhile wins.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import structlog

from smq_core.errors import InvalidRequest, SmqError, Unavailable
from smq_core.model.decision import Decision, DecisionAction
from smq_core.model.entities import Layout, Liveness, Segment, Topic, TopicSchema
from smq_core.reconcile.layout_recovery import rebuild_layout
from smq_core.scaling.placement import Placer
from smq_operator.brokers.calls import BrokerCalls
from smq_operator.brokers.registry import Broker, BrokerRegistry
from smq_operator.reconcile.broker_assignments import BrokerAssignments
from smq_operator.reconcile.decision_log import DecisionLog
from smq_operator.reconcile.topics.directory import TopicDirectory
from smq_operator.reconcile.topics.managed_topic import ManagedTopic
from smq_operator.reconcile.warm_up import WarmUp
from smq_operator.runtime.clock import Clock
from smq_operator.runtime.store_pool import StorePool
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import segment_from_pb, topic_from_pb
from smq_storage.catalog import paths, sealed_index
from smq_storage.catalog.layouts import put_layout, read_layout
from smq_storage.catalog.topics import put_current, put_topic, read_current, read_topic
from smq_storage.object_store.store import Store
from smq_storage.verification.lost_layout import living_uids, read_traces

log = structlog.get_logger(__name__)

BROKER_TIMEOUT_SECONDS = 2.0


@dataclass(slots=True)
class RecoveryReport:
    """Lines for people. ``unknown`` is what messages may be lost with."""

    found: list[str] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRecovery:
    """See the module's docstring. Use it on the event loop."""

    topics: TopicDirectory
    registry: BrokerRegistry
    brokers: BrokerCalls
    assignments: BrokerAssignments
    decisions: DecisionLog
    warm_up: WarmUp
    store: StorePool
    clock: Clock
    owner: Callable[[], str]

    async def recover(self, name: str, *, preview: bool, accept_loss: bool) -> RecoveryReport:
        """Raises InvalidRequest if nothing is missing, or if messages may be lost and that is not accepted."""
        managed = self.topics.topic(name)
        if not self.warm_up.over:
            raise Unavailable("the brokers still report to the new leader: try again in a few seconds")
        report = RecoveryReport()
        uid, lacks_current = await self._find_uid(managed, report)
        topic = await self.store.run(read_topic, managed.name, uid)
        if topic is None:
            topic = await self._topic(managed, uid, report)
            report.writes.append(f"{paths.topic_json(managed.name, uid)}: {_specified(topic)}")
        layout = None
        if await self.store.run(read_layout, managed.name, uid) is None:
            layout = await self._layout(managed, topic, report)
            report.writes.append(f"{paths.layout(managed.name, uid)}: {_described(layout)}")
        if lacks_current:
            report.writes.append(f"{paths.current(managed.name)}: uid {uid}")
        if not report.writes:
            raise InvalidRequest(
                f"no document of topic {managed.name} is missing that can be rebuilt: nothing was changed"
            )
        if preview:
            return report
        if report.unknown and not accept_loss:
            raise InvalidRequest(
                "nothing was changed, because acked messages may be lost: "
                + "; ".join(report.unknown)
                + ". Start the brokers that hosted the topic, and repeat the command; --accept-loss goes on without"
            )
        await self.store.run(self._write, topic, layout, lacks_current, managed.desired.uid is not None)
        segments = tuple(segment.name for segment in layout.segments) if layout is not None else ()
        self.decisions.record(
            Decision(
                at=self.clock(),
                topic=topic.name,
                action=DecisionAction.RECOVER,
                segments=segments,
                reason="; ".join(report.writes),
            )
        )
        return report

    async def _find_uid(self, managed: ManagedTopic, report: RecoveryReport) -> tuple[str, bool]:
        """The topic's uid, and whether the filer does not name it."""
        current = await self.store.run(read_current, managed.name)
        if current is not None:
            if not current[0]:
                raise InvalidRequest(f"topic {managed.name} was deleted: there is nothing to recover")
            return current[0], False
        found = await self.store.run(living_uids, managed.name)
        wanted = managed.desired.uid
        uids = [uid for uid in found if wanted in (None, uid)]
        if len(uids) != 1:
            raise InvalidRequest(
                f"{paths.current(managed.name)} cannot be rebuilt: the filer has {len(uids)} topics of that name that "
                f"were not deleted ({', '.join(uids) or 'none'}). Restore it from a backup"
            )
        report.found.append(f"{managed.name}/{uids[0]} has the topic's data")
        return uids[0], True

    async def _topic(self, managed: ManagedTopic, uid: str, report: RecoveryReport) -> Topic:
        """What never changes of the topic: partitions, key and first columns. Its manifest has the rest."""
        if managed.topic is not None and managed.topic.uid == uid:
            report.found.append("this leader has the topic's spec in memory")
            return managed.topic
        for opened in await self._query_brokers(uid, report):
            # Brokers know the columns of their segment's version, and the document has those of the first version.
            if not opened.topic.schema or opened.segment.schema_version == 0:
                report.found.append(f"{opened.segment.name} is hosted with the topic's spec")
                return topic_from_pb(opened.topic)
        raise InvalidRequest(
            f"{paths.topic_json(managed.name, uid)} is missing, and no broker has a segment with the topic's first "
            "columns: start the brokers that hosted the topic, or restore the file from a backup"
        )

    async def _layout(self, managed: ManagedTopic, topic: Topic, report: RecoveryReport) -> Layout:
        writer = uuid.uuid4().hex
        known = managed.layout
        if known is not None and known.uid == topic.uid:
            report.found.append("this leader has the layout in memory")
            return replace(known, version=known.version + 1, writer=writer)
        hosted, schemas = self._hosted(await self._query_brokers(topic.uid, report))
        traces = replace(await self.store.run(read_traces, topic), hosted=hosted, schemas=schemas)
        report.found.append(f"{len(traces.sealed)} sealed segments in the index")
        placer = Placer(self.assignments.views())
        try:
            rebuilt = rebuild_layout(topic, traces, placer, now=self.clock(), writer=writer)
        except ValueError as error:
            raise InvalidRequest(f"the layout of {topic.name} cannot be rebuilt: {error}") from None
        report.found += rebuilt.found
        report.unknown += rebuilt.unknown
        return rebuilt.layout

    async def _query_brokers(self, uid: str, report: RecoveryReport) -> list[pb.OpenSegment]:
        """The segments that brokers have of the topic, also in journals."""
        now = self.clock()
        running = [broker for broker in self.registry.all() if broker.terminated is None]
        alive = [broker for broker in running if broker.liveness(now) is Liveness.ALIVE]
        answers = await asyncio.gather(*(self._query(broker, uid) for broker in alive))
        unresponsive = [broker for broker in running if broker not in alive]
        unresponsive += [broker for broker, answer in zip(alive, answers, strict=True) if answer is None]
        lines = [f"broker {broker.replica.broker} does not answer" for broker in unresponsive]
        report.found += [line for line in lines if line not in report.found]
        return [it for answer in answers if answer is not None for it in answer.segments]

    @staticmethod
    def _hosted(found: Iterable[pb.OpenSegment]) -> tuple[dict[str, Segment], dict[int, TopicSchema]]:
        """The segments, and the schemas of these."""
        hosted: dict[str, Segment] = {}
        schemas: dict[int, TopicSchema] = {}
        for opened in found:
            segment = segment_from_pb(opened.segment)
            hosted[segment.name] = segment
            version = segment.schema_version
            schemas[version] = TopicSchema(version, topic_from_pb(opened.topic).spec.schema)
        return hosted, schemas

    async def _query(self, broker: Broker, uid: str) -> pb.HostedSegments | None:
        try:
            request = pb.HostedSegmentsRequest(uid=uid)
            body = await self.brokers.call(broker.replica, "segments", request, timeout=BROKER_TIMEOUT_SECONDS)
        except SmqError as error:
            log.warning("recovery.no_answer", broker=broker.replica.broker, message=error.message)
            return None
        return pb.HostedSegments.FromString(body)

    def _write(
        self, store: Store, topic: Topic, layout: Layout | None, lacks_current: bool, uid_is_external: bool
    ) -> None:
        # The uid comes last, because the leader leads the topic as soon as it is there.
        if read_topic(store, topic.name, topic.uid) is None:
            put_topic(store, topic)
        if layout is not None:
            put_layout(store, layout, None, self.store.retry_policy)
            sealed_index.create_first_page(store, topic.name, topic.uid, self.store.retry_policy)
        if lacks_current:
            put_current(store, topic.name, topic.uid, None, self.store.retry_policy, self.owner(), uid_is_external)


def _specified(topic: Topic) -> str:
    columns = ", ".join(column.name for column in topic.spec.schema)
    return f"{topic.spec.partitions} partitions; " + (f"the columns {columns}" if columns else "no columns")


def _described(layout: Layout) -> str:
    phases: Iterable[str] = (f"{it.name} {it.phase.value}" for it in layout.segments)
    return f"{', '.join(phases)}; the next segment gets number {layout.next_number}"
