"""The leader process's own code in the simulation: its loop, effects, services, groups and fleet.

It runs on a virtual event loop. Only the store, the calls to brokers, the platform and the time are simulated.
"""

from __future__ import annotations

import uuid
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from smq_core.errors import Unavailable, UnknownTopic
from smq_core.model.group_start import GroupStart
from smq_core.reconcile.topic_reconciler import TopicReconciler
from smq_operator.leader import build_leader
from smq_operator.leader_process import fleet_reconciler
from smq_operator.platform_port import DesiredTopic, Problem, TerminationProof
from smq_operator.runtime.merge_settings import MergeSettings
from smq_operator.runtime.readiness import Readiness
from smq_operator.runtime.store_pool import StorePool
from smq_operator.runtime.task_runner import TaskRunner
from smq_proto.v1 import admin_pb2, brokers_pb2, groups_pb2
from smq_proto.wire import PROTOCOL
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import StoreSettings
from support.sim.engine.virtual_asyncio import VirtualLoop
from support.sim.engine.world import Future, Process, Steps
from support.sim.filer.blocking_store import BlockingStore
from support.sim.leaders import orphaned_files, topic_deletion
from support.sim.leaders.broker_calls import SimulatedCalls
from support.sim.leaders.file_lists import CHECK_AGAIN_AFTER
from support.sim.leaders.retention import CLEANUP

if TYPE_CHECKING:
    from support.sim.histories.leader_process import LeaderProcessHistory

CALL_TIMEOUT = 10.0


class SimulatedPlatform:
    """The leader's port to the brokers' platform and to the desired topics. The leader calls no other method."""

    def __init__(self, leader: ProcessLeader) -> None:
        self.leader = leader
        self._wanted = leader.history.deployment.wanted
        self._paused = False
        self._deleted = False

    def desired_topics(self) -> Mapping[str, DesiredTopic]:
        history = self.leader.history
        topic = history.topic
        if self._deployment.reached_by(self.leader.process):
            self._paused, self._deleted = history.pausing.on, history.deleting.gone
        if self._deleted:
            return {}
        return {topic.name: DesiredTopic(name=topic.name, spec=topic.spec, uid=topic.uid, paused=self._paused)}

    async def delete(self, topic: str) -> None:
        if not self._deployment.reached_by(self.leader.process):
            raise Unavailable("the API does not answer")
        self.leader.history.deleting.delete_manifest()

    def problems(self) -> list[Problem]:
        return []

    def desired_brokers(self) -> int:
        if self._deployment.reached_by(self.leader.process):
            self._wanted = self._deployment.wanted
        return self._wanted

    def scale_brokers(self, count: int, stop_first: str | None = None) -> None:
        if self._deployment.reached_by(self.leader.process):
            self._deployment.scale(count, stop_first)

    def termination_proof(self, incarnation: str, reporting: bool = False) -> TerminationProof | None:
        dead = self.leader.history.supervisor.proves_gone(self.leader.address, incarnation)
        return TerminationProof("its process was reaped") if dead else None

    def is_current_incarnation(self, broker: str, incarnation: str) -> bool | None:
        return None

    @property
    def _deployment(self) -> Any:
        return self.leader.history.deployment


class SimulatedRpcAborted(Exception):
    """The error that ``context.abort`` raises."""


class _SimulatedServicerContext:
    async def abort(self, status: object, message: str, trailing_metadata: object = ()) -> None:
        raise SimulatedRpcAborted(message)


class ProcessLeader:
    """Runs the operator's ``leader.Leader`` with the interface that the rest of the simulation uses."""

    def __init__(self, history: LeaderProcessHistory, address: str) -> None:
        self.history = history
        self.world = history.world
        self.network = history.network
        self.address = address
        self.process = Process(self.world, address, self.world.unique(f"{address}."))
        self.process.node = self
        self.skew = 0
        self.loop = VirtualLoop(self.process)
        filer, platform, calls = (
            BlockingStore(history.store, self.process),
            SimulatedPlatform(self),
            SimulatedCalls(self),
        )
        store: Any = filer
        cleanup = replace(CLEANUP, deleted_topics_grace_us=topic_deletion.RETENTION_TIME)
        if history.orphan_scenario.drawn:
            cleanup = replace(
                cleanup,
                orphan_grace_us=orphaned_files.RETENTION_TIME,
                orphan_check_interval_us=orphaned_files.CHECK_EVERY,
            )
        uuid.uuid4()  # drawn as for the writer id of a process, so that recorded histories stay the same
        self.parts = build_leader(
            platform,  # type: ignore[arg-type]
            calls,
            StorePool(store, None, RetryPolicy(CALL_TIMEOUT)),
            StoreSettings(url=filer.url),
            clock=self.clock,
            readiness=Readiness(),
            tasks=TaskRunner(),
            owner=lambda: "",
            writer_id=self.process.name,
            cleanup=cleanup,
            merge=MergeSettings(below_bytes=0),
            check_file_lists_after_us=CHECK_AGAIN_AFTER,
        )
        self.groups, self.services = self.parts.groups, self.parts.services
        self._idle = TopicReconciler(history.topic, lambda: "")
        self.network.listening[address] = self.process
        self.loop.create_task(self.parts.topic_deletions.run())
        if history.limits.on or history.deleting.drawn:
            self.loop.create_task(self.parts.garbage_collector.run())
        if history.file_lists.drawn:
            self.loop.create_task(self.parts.file_lists.run())
        fleet = fleet_reconciler(self.parts, lambda: history.policy)
        for work in (self.parts.loop.run(), self.groups.run(), fleet.run()):
            self.loop.create_task(work)

    def clock(self) -> int:
        """The time in microseconds. The leader's own clock never jumps."""
        return self.world.now

    @property
    def machine(self) -> TopicReconciler:
        run = self.parts.topics.get(self.history.topic.name)
        return run.reconciler if run is not None and run.reconciler is not None else self._idle

    def delete(self) -> Future:
        """An administrator's request to delete the topic. Returns the answer, or an error."""
        return self.loop.start(self._delete())

    async def _delete(self) -> None:
        try:
            await self._call(
                self.services.admin.DeleteTopic(admin_pb2.DeleteTopicRequest(topic="t"), _SimulatedServicerContext())
            )
        except Unavailable as error:
            if "there is no topic" in error.message:
                raise UnknownTopic(error.message) from None
            raise

    # ---- calls

    def on_report(self, report: tuple[Any, ...]) -> Steps:
        name, incarnation, address, leaving, _, _, unresponsive, status, _, _, answers = report
        message = brokers_pb2.BrokerReport(
            protocol=PROTOCOL,
            broker=name,
            incarnation=incarnation,
            address=address,
            node=address,
            zone=self.history.zone_of(address),
            leaving=leaving,
            status=status,
            unresponsive=list(unresponsive),
            last_leader=self.parts.registry.leader,
            last_answer=answers.get(self.parts.registry.leader, 0),
        )
        reply = yield self.loop.start(self._call(self.services.brokers.Report(message, _SimulatedServicerContext())))
        named = set(reply.assigned) if self.parts.topics.all_layouts_known else None
        return reply.may_leave, named, (reply.leader, reply.answer)

    def on_join(self, group: str, member: str, generation: int) -> Steps:
        return (yield self.loop.start(self._join(group, member, generation)))

    def on_commit(self, group: str, member: str, generation: int, positions: dict[str, int], epoch: str) -> Steps:
        topic = self.history.topic.name
        commit = self.groups.commit(topic, group, member, generation, positions, epoch=epoch)
        return (yield self.loop.start(commit))

    def on_set_positions(self, group: str, positions: Mapping[str, int]) -> Steps:
        """An administrator sets the positions of a group."""
        request = groups_pb2.SetPositionsRequest(topic="t", group=group, positions=positions)
        yield self.loop.start(self._call(self.services.groups.SetPositions(request, _SimulatedServicerContext())))

    def on_delete_group(self, group: str) -> Steps:
        request = groups_pb2.DeleteGroupRequest(topic="t", group=group)
        yield self.loop.start(self._call(self.services.groups.DeleteGroup(request, _SimulatedServicerContext())))

    async def _join(self, group: str, member: str, generation: int) -> Any:
        topic = self.history.topic.name
        _, assignment = await self.groups.join(topic, group, member, GroupStart.EARLIEST, generation)
        served = self.groups.loaded(topic, group)
        if served is None:
            raise Unavailable("the group was dropped meanwhile: ask again")
        self.history.checker.assigned(group, served)
        return assignment, dict(served.reader.nodes)

    async def _call(self, answer: Coroutine[Any, Any, Any]) -> Any:
        try:
            return await answer
        except SimulatedRpcAborted as error:
            raise Unavailable(str(error)) from None
