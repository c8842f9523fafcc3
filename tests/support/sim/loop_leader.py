"""The leader process itself in the simulation: its loop, effects, service, groups and fleet, on a virtual event loop.

Only what it is connected to is simulated: the store, the calls to brokers, the world that runs brokers, time.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from smq_core.decide import Request
from smq_core.errors import Unavailable, UnknownTopic
from smq_core.leading import TopicLeader
from smq_operator.collect import Collector
from smq_operator.deaf import Deaf
from smq_operator.desk import Desk
from smq_operator.doubts import Doubts
from smq_operator.effects import Effects
from smq_operator.endings import Endings
from smq_operator.fleet import FleetKeeper
from smq_operator.groups import Groups
from smq_operator.loop import LeaderLoop
from smq_operator.orphans import Orphans
from smq_operator.registry import Registry
from smq_operator.service import LeaderService
from smq_operator.world import Problem, Wish
from smq_proto.v1 import data_pb2 as pb
from smq_proto.v1 import leader_pb2 as lpb
from smq_proto.wire import PROTOCOL
from smq_storage.store import StoreSettings
from support.sim import deleting, straying
from support.sim.filer import Filer
from support.sim.leader_calls import SimulatedCalls
from support.sim.retaining import PACE
from support.sim.virtual_asyncio import VirtualLoop
from support.sim.world import Future, Process, Steps

if TYPE_CHECKING:
    from support.sim.loop_history import LoopHistory

PATIENCE = 10.0


class SimulatedWorld:
    """The leader's port to what runs brokers, and to who wishes topics. No other method is called."""

    def __init__(self, leader: LoopLeader) -> None:
        self.leader = leader
        self._wanted = leader.history.deployment.wanted
        self._paused = False
        self._deleted = False

    def wishes(self) -> Mapping[str, Wish]:
        history = self.leader.history
        topic = history.topic
        if self._deployment.reached_by(self.leader.process):
            self._paused, self._deleted = history.pausing.on, history.deleting.gone
        if self._deleted:
            return {}
        return {topic.name: Wish(topic.name, topic.spec, topic.uid, paused=self._paused)}

    async def delete(self, topic: str) -> None:
        if not self._deployment.reached_by(self.leader.process):
            raise Unavailable("the API does not answer")
        self.leader.history.deleting.unwish()

    def problems(self) -> list[Problem]:
        return []

    def brokers_wanted(self) -> int:
        if self._deployment.reached_by(self.leader.process):
            self._wanted = self._deployment.wanted
        return self._wanted

    def want_brokers(self, count: int, go: str | None = None) -> None:
        if self._deployment.reached_by(self.leader.process):
            self._deployment.scale(count, go)

    def proof_of_death(self, incarnation: str) -> str | None:
        dead = self.leader.history.supervisor.proves_gone(self.leader.address, incarnation)
        return "its process was reaped" if dead else None

    def claims(self, broker: str, incarnation: str) -> bool | None:
        return None

    @property
    def _deployment(self) -> Any:
        return self.leader.history.deployment


class Refused(Exception):
    """What ``context.abort`` raised."""


class _Context:
    async def abort(self, status: object, message: str, trailing_metadata: object = ()) -> None:
        raise Refused(message)


class LoopLeader:
    """As ``leader.Leader`` to the rest of the simulation."""

    def __init__(self, history: LoopHistory, address: str) -> None:
        self.history = history
        self.world = history.world
        self.network = history.network
        self.address = address
        self.process = Process(self.world, address, self.world.unique(f"{address}."))
        self.process.node = self
        self.skew = 0
        self.loop = VirtualLoop(self.process)
        filer, world, calls = Filer(history.store, self.process), SimulatedWorld(self), SimulatedCalls(self)
        patience = filer.patience(PATIENCE)
        store: Any = filer
        self.effects = Effects(store, calls, None, self.clock, patience)  # type: ignore[arg-type]
        self.effects.me = self.process.name
        self.leading = LeaderLoop(world, Registry(world), store, self.effects, self.clock, patience)  # type: ignore[arg-type]
        self.groups = Groups(self.leading, patience)
        self.desk = Desk(
            self.leading,
            calls,  # type: ignore[arg-type]
            Doubts(self.leading, calls),
            self.groups,
            Orphans(self.leading, calls),
            Deaf(self.leading),
            Endings(self.leading, calls, patience),
            StoreSettings(filer.url),
        )
        self.service = LeaderService(self.desk)
        self._idle = TopicLeader(history.topic, lambda: "")
        self.network.listening[address] = self.process
        self.loop.create_task(self.desk.endings.keep())
        if history.limits.on or history.deleting.drawn:
            pace = replace(PACE, deleted_topics=deleting.STAY)
            if history.straying.drawn:
                pace = replace(pace, strays=straying.STAY, look_every=straying.LOOK_EVERY)
            collector = Collector(self.leading, self.groups, pace, patience)
            self.loop.create_task(collector.keep())
        for work in (self.leading.run(), self.groups.keep(), FleetKeeper(self.leading, history.policy).keep()):
            self.loop.create_task(work)

    def clock(self) -> int:
        """Microseconds; the leader's own clock never jumps."""
        return self.world.now

    @property
    def machine(self) -> TopicLeader:
        run = self.leading.topics.get(self.history.topic.name)
        return run.leader if run is not None and run.leader is not None else self._idle

    def ask(self, request: Request) -> None:
        self.machine.ask(request)

    def delete(self) -> Future:
        """A person asks for it; the answer, or an error."""
        return self.loop.start(self._delete())

    async def _delete(self) -> None:
        try:
            await self._call(self.service.DeleteTopic(pb.LocateRequest(topic="t"), _Context()))
        except Unavailable as error:
            if "there is no topic" in error.message:
                raise UnknownTopic(error.message) from None
            raise

    # ---- calls

    def on_report(self, report: tuple[Any, ...]) -> Steps:
        name, incarnation, address, leaving, _, _, silent, status = report
        message = lpb.BrokerReport(
            protocol=PROTOCOL,
            broker=name,
            incarnation=incarnation,
            address=address,
            node=address,
            zone=self.history.zone_of(address),
            leaving=leaving,
            status=status,
            silent=list(silent),
        )
        reply = yield self.loop.start(self._call(self.service.Report(message, _Context())))
        named = set(reply.held) if self.leading.knows_everything else None
        return reply.may_leave, named

    def on_join(self, group: str, member: str, generation: int) -> Steps:
        return (yield self.loop.start(self._join(group, member, generation)))

    def on_commit(self, group: str, member: str, generation: int, positions: dict[str, int]) -> Steps:
        topic = self.history.topic.name
        return (yield self.loop.start(self.groups.commit(topic, group, member, generation, positions)))

    async def _join(self, group: str, member: str, generation: int) -> Any:
        topic = self.history.topic.name
        _, assignment = await self.groups.join(topic, group, member, "earliest", generation)
        served = self.groups.served(topic, group)
        if served is None:
            raise Unavailable("the group was dropped meanwhile: ask again")
        self.history.checker.assigned(group, served)
        return assignment, dict(served.reader.nodes)

    async def _call(self, answer: Coroutine[Any, Any, Any]) -> Any:
        try:
            return await answer
        except Refused as error:
            raise Unavailable(str(error)) from None
