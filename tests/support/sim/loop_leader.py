"""The leader process itself in the simulation: its loop, effects, service, groups and fleet, on a virtual event loop.

Only what it is connected to is simulated: the store, the calls to brokers, the world that runs brokers, time.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from smq_core.decide import Request
from smq_core.errors import Unavailable
from smq_core.leading import TopicLeader
from smq_core.model import Replica
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
from smq_proto.wire import PROTOCOL, outcome_to_pb, segment_from_pb
from smq_storage.store import StoreSettings
from support.sim.filer import Filer
from support.sim.retaining import PACE
from support.sim.virtual_asyncio import VirtualLoop
from support.sim.world import SECOND, Process, Steps

if TYPE_CHECKING:
    from support.sim.loop_history import LoopHistory

PATIENCE = 10.0


class SimulatedWorld:
    """The leader's port to what runs brokers: the deployment, and who knows of deaths. No other method is called."""

    def __init__(self, leader: LoopLeader) -> None:
        self.leader = leader
        self._wanted = leader.history.deployment.wanted
        self._paused = False

    def wishes(self) -> Mapping[str, Wish]:
        topic = self.leader.history.topic
        if self._deployment.reached_by(self.leader.process):
            self._paused = self.leader.history.pausing.on
        return {topic.name: Wish(topic.name, topic.spec, topic.uid, paused=self._paused)}

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


class SimulatedCalls:
    """The leader's calls to brokers."""

    def __init__(self, leader: LoopLeader) -> None:
        self.leader = leader

    async def call(self, replica: Replica, action: str, request: Any, *, timeout: float, urgent: bool = False) -> bytes:
        match request:
            case pb.OpenSegment():
                await self._ask(replica, timeout, "open", segment_from_pb(request.segment), replica.incarnation)
                return pb.OpenedSegment().SerializeToString()
            case pb.SealSegment(only_flush=True):
                await self._ask(replica, timeout, "flush", request.segment, replica.incarnation)
                return b""
            case pb.SealSegment():
                outcome = await self._ask(replica, timeout, "seal", request.segment, replica.incarnation)
                return outcome_to_pb(outcome).SerializeToString()
        await self._ask(replica, timeout, "status", replica.incarnation)
        return pb.BrokerStatus(incarnation=replica.incarnation).SerializeToString()

    async def _ask(self, replica: Replica, timeout: float, method: str, *args: Any) -> Any:
        leader = self.leader
        call = leader.network.call(leader.process, replica.address, method, *args, timeout=int(timeout * SECOND))
        return await leader.loop.answer_of(call)

    def forget(self, incarnation: str) -> None:
        """Nothing is kept."""


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
        if history.limits.on:
            collector = Collector(self.leading, self.groups, PACE, patience)
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
