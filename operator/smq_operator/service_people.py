"""What the leader answers to people: topics, brokers, decisions, and what they ask for by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import structlog

from smq_core.autoscale import Change, Merge
from smq_core.decide import Request
from smq_core.errors import InvalidRequest, NoBrokers, SmqError, StoreUnavailable, Unavailable
from smq_core.model import SECOND, Durability, Topic
from smq_core.sealing import Liveness
from smq_operator.asking import WRITTEN_WITHIN, accept_loss, ask, written
from smq_operator.desk import Desk
from smq_operator.lifecycle import retire
from smq_operator.loop import full_name
from smq_operator.refusals import answers
from smq_operator.topic import TopicRun
from smq_proto.v1 import data_pb2 as pb
from smq_proto.v1 import leader_pb2 as lpb
from smq_proto.wire import layout_to_pb, topic_to_pb
from smq_storage.conditional import Patience
from smq_storage.manifest import check_change, parse_manifest

log = structlog.get_logger()

DRAIN_TIMEOUT = 2.0
ADOPTED_WITHIN = 3.0
"""So long a deletion waits for a topic that this leader has not read yet."""
SEALED_WITHIN = 8.0
"""Less than clients wait for an answer, so that they hear what keeps a deleted topic's segments from being sealed."""


class PeopleService:
    """ApplyTopic, DeleteTopic, the lists, Decisions, Plan, DrainBroker, AcceptLoss."""

    desk: Desk

    @answers
    async def ApplyTopic(self, request: lpb.ApplyTopicRequest) -> lpb.ApplyTopicReply:
        loop = self.desk.loop
        wish = parse_manifest(request.manifest)
        known = loop.topics.get(wish.full_name)
        if known is not None and known.topic is not None:
            check_change(known.topic.spec, wish.spec)
        name, result = await loop.world.apply(request.manifest)
        run = await loop.adopted(name)
        if run.problem is not None:
            raise InvalidRequest(f"topic {name}: {run.problem}")
        return lpb.ApplyTopicReply(topic=name, result=result)

    @answers
    async def DeleteTopic(self, request: pb.LocateRequest) -> lpb.Empty:
        """Answers when every segment is sealed: from then on nobody gets an ack of this topic."""
        loop, endings = self.desk.loop, self.desk.endings
        going_on = endings.of(full_name(request.topic))
        if going_on is not None and full_name(request.topic) not in loop.topics:
            await endings.wait(going_on, SEALED_WITHIN)
            return lpb.Empty()
        if full_name(request.topic) not in loop.topics and not endings.looked:
            raise Unavailable("this leader has just begun and does not know yet what is being deleted: try again")
        asked = loop.now()
        topic = await self._to_be_deleted(request.topic)
        # First the filer: when that fails nothing was changed, and deleting can be tried again.
        await loop.effects.in_pool(retire, loop.store, topic.name, topic.uid, Patience(5.0), loop.now())
        await loop.world.delete(topic.name)
        loop.sync_wishes()
        endings.begin(topic.name, topic.uid)
        await endings.wait(topic.uid, SEALED_WITHIN - (loop.now() - asked) / SECOND)
        return lpb.Empty()

    async def _to_be_deleted(self, name: str) -> Topic:
        """The topic as the filer has it. A new leader may not have read it yet: brokers may hold segments of it."""
        run = self.desk.loop.topic(name)
        if run.topic is None:
            with suppress(StoreUnavailable):
                run = await self.desk.loop.adopted(run.name, ADOPTED_WITHIN)
        if run.topic is None:
            raise StoreUnavailable(
                f"topic {run.name} is not deleted, and nothing was changed: this leader has not read yet what the "
                f"filer has of it ({run.problem or 'the filer does not answer'}). Try again"
            )
        return run.topic

    @answers
    async def PauseTopic(self, request: lpb.PauseTopicRequest) -> lpb.Empty:
        loop = self.desk.loop
        run = loop.topic(request.topic)
        await loop.world.set_paused(run.name, request.paused)
        loop.sync_wishes()
        loop.kick(run)
        return lpb.Empty()

    @answers
    async def ListTopics(self, request: lpb.Empty) -> lpb.TopicList:
        loop = self.desk.loop
        return lpb.TopicList(
            topics=[_told(run) for _, run in sorted(loop.topics.items())],
            problems=[lpb.TopicList.Problem(where=p.where, message=p.message) for p in loop.world.problems()],
        )

    @answers
    async def ListBrokers(self, request: lpb.Empty) -> lpb.BrokerList:
        now = self.desk.loop.now()
        told = []
        for broker in self.desk.loop.registry.all():
            alive = broker.liveness(now)
            state = "draining" if broker.draining and alive is Liveness.ALIVE else alive.value
            told.append(
                lpb.BrokerList.Broker(
                    name=broker.replica.broker,
                    incarnation=broker.replica.incarnation,
                    address=broker.replica.address,
                    state=state,
                    status=broker.status,
                )
            )
        return lpb.BrokerList(brokers=told)

    @answers
    async def Decisions(self, request: lpb.Empty) -> lpb.DecisionList:
        return lpb.DecisionList(
            decisions=[
                lpb.DecisionList.Decision(at=d.at, topic=d.topic, action=d.action, segments=d.segments, reason=d.reason)
                for d in self.desk.loop.decisions
            ]
        )

    @answers
    async def Plan(self, request: lpb.PlanRequest) -> lpb.Empty:
        """Answers when the layout says that it is being done: whoever leads then goes on with it."""
        wanted = Request(request.action, tuple(request.segments), tuple(request.boundaries))
        wanted = ask(self.desk.loop, request.topic, wanted)
        await written(self.desk.loop.topic(request.topic), wanted)
        return lpb.Empty()

    @answers
    async def DrainBroker(self, request: lpb.DrainBrokerRequest) -> lpb.Empty:
        loop = self.desk.loop
        living = [b for b in loop.registry.named(request.broker) if b.gone is None]
        if not living:
            there = ", ".join(sorted({b.replica.broker for b in loop.registry.living(loop.now())})) or "none"
            raise InvalidRequest(f"there is no broker {request.broker} (there: {there})")
        others = [b for b in loop.registry.living(loop.now()) if b not in living and not b.draining]
        if not others:
            raise NoBrokers(
                f"no other broker could take the segments of {request.broker}, those of today or tomorrow: start one "
                "first"
            )
        for broker in living:
            broker.draining = True
            log.info("broker.drain", broker=request.broker, incarnation=broker.replica.incarnation)
            order = pb.DrainRequest(incarnation=broker.replica.incarnation)
            try:
                await self.desk.brokers.call(broker.replica, "drain", order, timeout=DRAIN_TIMEOUT)
            except SmqError as error:
                # The mark here is what moves its segments; the broker's own is for its status.
                log.warning("broker.drain.failed", broker=request.broker, message=error.message)
        loop.kick()
        return lpb.Empty()

    @answers
    async def AcceptLoss(self, request: lpb.SegmentRequest) -> lpb.Empty:
        loop = self.desk.loop
        segment = accept_loss(loop, request.topic, request.segment)
        run = loop.topic(request.topic)
        try:
            async with asyncio.timeout(WRITTEN_WITHIN):
                while run.layout is None or (segment in run.layout and not run.layout.segment(segment).loss_accepted):
                    await run.change()
        except TimeoutError:
            raise StoreUnavailable(
                f"{segment}: accepting its loss could not be written down, the filer does not answer. It is done as "
                "soon as that ends, unless this leader ends before: then say it again"
            ) from None
        return lpb.Empty()


def _told(run: TopicRun) -> lpb.TopicList.Topic:
    rates = run.rates()
    return lpb.TopicList.Topic(
        info=topic_to_pb(run.topic) if run.topic is not None else pb.TopicInfo(name=run.name),
        layout=layout_to_pb(run.layout) if run.layout is not None else None,
        messages_per_second=rates.messages,
        bytes_per_second=rates.bytes,
        conditions=conditions(run),
        sealed_segments=len(run.sealed),
        paused=run.wish.paused,
    )


def conditions(run: TopicRun) -> list[lpb.Condition]:
    """What is to be said of a topic's state; ``Ready`` always."""
    found: list[lpb.Condition] = []
    layout = run.layout
    blocked = run.leader.blocked if run.leader is not None else {}
    ready = layout is not None
    why = "" if ready else run.problem or "no broker is there to hold its segments"
    found.append(lpb.Condition(type="Ready", status=ready, reason="Led" if ready else "Waiting", message=why))
    if run.problem is not None:
        found.append(lpb.Condition(type="ManifestRefused", status=True, reason="InvalidManifest", message=run.problem))
    if run.wish.paused:
        found.append(lpb.Condition(type="AutoscalingPaused", status=True, reason="Asked", message=_paused(run)))
    for name, block in blocked.items():
        message = (
            f"{name}: no replica answers and none is proved gone ({', '.join(block.waiting_for)}): bring one back, "
            "or accept the loss of what only they hold"
        )
        found.append(lpb.Condition(type="SealBlocked", status=True, reason="ReplicasUnreachable", message=message))
    if run.topic is not None and layout is not None and run.topic.spec.durability is Durability.REPLICATED:
        living = [s for s in layout.segments if not s.successors]
        single = [s.name for s in living if s.durability is Durability.STORED]
        fewest = min((len(s.replicas) for s in living), default=0)
        if single:
            message = "too few brokers for replicas, acks wait for the filer: " + _several(single)
            found.append(lpb.Condition(type="FewBrokers", status=True, reason="StoredInstead", message=message))
        elif living and fewest < run.topic.spec.replicas:
            message = (
                f"spec.replicas is {run.topic.spec.replicas}, but there are brokers for {fewest}: "
                "start more of them, or ask for fewer replicas"
            )
            found.append(lpb.Condition(type="FewBrokers", status=True, reason="FewerReplicas", message=message))
    for hot in run.leader.load.hot.values() if run.leader is not None else ():
        message = f"{hot.segment}: partition {hot.partition} alone has {hot.because}; more keys would spread it"
        found.append(lpb.Condition(type="HotPartition", status=True, reason="CannotSplit", message=message))
    if run.held:
        groups = ", ".join(sorted({group for names in run.held.values() for group in names}))
        message = (
            f"{len(run.held)} segments are beyond spec.retention and stay, because groups have still to read them "
            f"({groups}): let them read, or set retention.unread: Expire"
        )
        found.append(lpb.Condition(type="RetentionHeld", status=True, reason="UnreadByGroups", message=message))
    lost = [entry for entry in run.sealed.values() if entry.lost_from is not None]
    if lost:
        message = "; ".join(f"{entry.name}: offsets {entry.lost_from} to {entry.lost_to}" for entry in lost)
        found.append(lpb.Condition(type="DataLoss", status=True, reason="ReplicasGone", message=message))
    return found


def _paused(run: TopicRun) -> str:
    """What a pause is, what it keeps from being done now, and how it ends."""
    withheld = run.leader.load.withheld if run.leader is not None else ()
    # Without the rates: the message shall change when the answer does.
    words = [f"a {type(change).__name__.lower()} of {_of(change)}" for change in withheld]
    wants = f"; load asks for {'; '.join(words[:3])}" + (f" and {len(words) - 3} more" if len(words) > 3 else "")
    name = run.name.removeprefix("default/")
    return (
        "load changes no segments of it; failover, drains, rolls and commands go on"
        + (wants if words else "")
        + f". `smq topic resume {name}` ends it"
    )


def _of(change: Change) -> str:
    return ", ".join(change.segments) if isinstance(change, Merge) else change.segment


def _several(names: Sequence[str]) -> str:
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
