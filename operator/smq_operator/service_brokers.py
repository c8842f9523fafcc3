"""What the leader answers to brokers and to clients that look for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import structlog

from smq_core.errors import InvalidRequest, NoBrokers, StoreUnavailable, UnknownTopic
from smq_core.load import Counters
from smq_core.model import Segment
from smq_operator.desk import Desk
from smq_operator.refusals import answers, streams
from smq_operator.registry import TAKING, Broker
from smq_operator.topic import TopicRun
from smq_proto.v1 import data_pb2 as pb
from smq_proto.v1 import leader_pb2 as lpb
from smq_proto.wire import check_protocol, layout_to_pb, removed_to_pb, sealed_to_pb, topic_to_pb

log = structlog.get_logger()

LOCATE_PATIENCE = 2.0


class BrokerService:
    """Report, Locate, Watch, History, Hint."""

    desk: Desk

    @answers
    async def Report(self, report: lpb.BrokerReport) -> lpb.BrokerReportReply:
        check_protocol(report.protocol)
        desk, now = self.desk, self.desk.loop.now()
        await self._refuse_a_double(report)
        known = desk.loop.registry.get(report.incarnation)
        was = None if known is None else (known.liveness(now), known.draining)
        broker = desk.loop.registry.report(report, now)
        if was != (broker.liveness(now), broker.draining):
            desk.loop.kick()
        for segment in report.status.segments:
            run = desk.loop.topics.get(segment.topic)
            if run is not None and _learn(run, segment, report.incarnation, now):
                desk.loop.kick(run)
        desk.orphans.reported(broker, now)
        for incarnation in report.silent:
            desk.doubts.complain(incarnation, by=report.broker)
        desk.deaf.reported(report.incarnation, list(report.silent), now)
        if broker.doubted:
            desk.doubts.complain(report.incarnation, by=report.broker)
        held = desk.loop.held_by(report.incarnation)
        unwritten = any(s.primary and s.state == "open" and s.end > s.chain_end for s in report.status.segments)
        may_leave = broker.draining and not held and not unwritten and desk.loop.knows_everything
        may_leave = may_leave and not desk.endings.keeps(report.incarnation)
        others = any(self._drains(other) for other in desk.loop.registry.all() if other is not broker)
        return lpb.BrokerReportReply(may_leave=may_leave, held=held, others_drain=others)

    def _drains(self, broker: Broker) -> bool:
        """Something still has to go from it. One that holds nothing is done, proved to have ended or not."""
        if not broker.draining or broker.gone is not None:
            return False
        return bool(self.desk.loop.held_by(broker.replica.incarnation)) or not self.desk.loop.knows_everything

    async def _refuse_a_double(self, report: lpb.BrokerReport) -> None:
        """Two living processes of one name would make each other look gone: the later one is told to go."""
        registry = self.desk.loop.registry
        if registry.get(report.incarnation) is not None:
            return
        for other in registry.living(self.desk.loop.now()):
            same = other.replica.broker == report.broker
            if same and await self.desk.doubts.answers(other):
                raise InvalidRequest(
                    f"a broker named {report.broker} is alive at {other.replica.address} already: "
                    "start this one under a name of its own (--name)"
                )

    @answers
    async def Locate(self, request: pb.LocateRequest) -> pb.LocateReply:
        run = self.desk.loop.topic(request.topic)
        try:
            async with asyncio.timeout(LOCATE_PATIENCE):
                while run.layout is None:
                    await run.change()
                    run = self.desk.loop.topic(request.topic)
        except TimeoutError:
            raise NoBrokers(
                f"topic {run.name} has no segments yet: {run.problem or 'no broker is there to hold them'}"
            ) from None
        return self._located(run)

    @streams
    async def Watch(self, request: pb.LocateRequest) -> AsyncIterator[pb.LocateReply]:
        run = self.desk.loop.topic(request.topic)
        told: object = None
        while True:
            if run.removed:
                raise UnknownTopic(f"topic {run.name} was deleted")
            leader = run.leader
            if leader is not None and leader.layout is not None and told != (leader.etag, leader.topic):
                told = (leader.etag, leader.topic)
                yield self._located(run)
                continue
            await run.change()

    def _located(self, run: TopicRun) -> pb.LocateReply:
        """One message per version of the layout, however many ask."""
        assert run.leader is not None and run.leader.layout is not None
        key = (run.leader.etag, run.leader.topic)
        cached = self.desk.located.get(run.name)
        if cached is None or cached[0] != key:
            reply = pb.LocateReply(
                topic=topic_to_pb(run.leader.topic),
                layout=layout_to_pb(run.leader.layout),
                store_url=self.desk.store_settings.url,
                store_options=self.desk.store_settings.to_public_options(),
            )
            cached = self.desk.located[run.name] = (key, reply)
        return cached[1]

    @answers
    async def History(self, request: lpb.HistoryRequest) -> lpb.HistoryReply:
        run = await self.desk.loop.adopted(self.desk.loop.topic(request.topic).name)
        try:
            async with asyncio.timeout(LOCATE_PATIENCE):
                while not run.index_read:
                    await run.change()
        except TimeoutError:
            raise StoreUnavailable(f"the index of {run.name} is not read yet: is the filer there?") from None
        return lpb.HistoryReply(
            segments=[sealed_to_pb(entry) for entry in run.sealed.values()],
            removed=removed_to_pb(run.removed_numbers, run.gone.values()),
        )

    @answers
    async def Hint(self, hint: lpb.BrokerHint) -> lpb.Empty:
        self.desk.doubts.complain(hint.incarnation, by="a client")
        return lpb.Empty()


def _learn(run: TopicRun, report: pb.SegmentReport, incarnation: str, now: int) -> bool:
    """What a report says of a segment. True when it is news that the loop should act on."""
    leader, name = run.leader, report.segment
    layout = leader.layout if leader is not None else None
    if leader is None or layout is None or name not in layout:
        return False
    if report.uid != leader.topic.uid:
        return False  # of an earlier topic of that name
    segment: Segment = layout.segment(name)
    ours = any(replica.incarnation == incarnation for replica in segment.replicas)
    # What others say of it counts for nothing: a wrong watermark would be told as a loss one day.
    if ours and leader.watermarks.get(name, -1) < report.watermark <= report.end:
        leader.watermarks[name] = report.watermark
    if segment.primary.incarnation == incarnation:
        counted = Counters(report.messages, report.bytes, report.batches, tuple(report.histogram))
        known = leader.load.absurd.get(name)
        leader.load.observe(name, counted, now)
        if leader.load.changed_at == now:
            run.stirred(now)
        why = leader.load.absurd.get(name)
        if why is not None and known is None:
            broker = segment.primary.broker
            log.warning("report.ignored", topic=run.name, segment=name, broker=broker, message=why)
    if ours and not leader.holds(name, incarnation) and report.state in TAKING:
        leader.opened(name, incarnation)
        return True
    return False
