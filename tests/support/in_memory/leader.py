"""A leader's loop and service in the test's own process, over an in-memory store and fake brokers."""

from __future__ import annotations

import asyncio
import copy
import uuid
from collections.abc import AsyncIterator, Callable, Container, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace

from smq_core.errors import SmqError, UnknownTopic
from smq_core.model.entities import TopicSpec
from smq_core.reconcile.effects import Effect
from smq_core.reconcile.topic_reconciler import TopicReconciler
from smq_operator.api.admin import condition_messages
from smq_operator.leader import build_leader
from smq_operator.leader_process import supervise_leader
from smq_operator.platform_port import AppliedManifest, DesiredTopic, Problem, TerminationProof, manifest_of
from smq_operator.reconcile.effects import EffectRunner
from smq_operator.reconcile.topics.managed_topic import ManagedTopic
from smq_operator.runtime.cleanup_settings import CleanupSettings
from smq_operator.runtime.merge_settings import MergeSettings
from smq_operator.runtime.readiness import Readiness
from smq_operator.runtime.store_pool import StorePool
from smq_operator.runtime.task_runner import TaskRunner
from smq_operator.status.topic_snapshot import snapshot_of
from smq_proto.v1 import admin_pb2, brokers_pb2
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import Store, StoreSettings
from smq_storage.topic_manifests.parser import ManifestDocument, parse_resource, to_resource
from smq_storage.topic_manifests.spec_patch import SpecPatch, patched_spec
from support import virtual_time
from support.in_memory.brokers import FakeFleet
from support.leader_services import handler_of

WARM_UP = 100_000


class FakePlatform:
    """Desired topics and termination proofs as the test sets them."""

    def __init__(self, brokers: int = 3) -> None:
        self.topics: dict[str, DesiredTopic] = {}
        self.terminated: dict[str, str] = {}
        """Incarnations that have ended with their journals, and why."""
        self.ended: dict[str, str] = {}
        """Incarnations that have ended, but whose journals may come back."""
        self.count = brokers
        self.restarted: list[str] = []

    async def start(self, changed: Callable[[], None]) -> None: ...

    async def stop(self) -> None: ...

    def add_topic(self, name: str, **spec: object) -> None:
        small = {"partitions": 16, "max_segments": min(64, int(str(spec.get("partitions", 16))))} | spec
        self.topics[name] = DesiredTopic(name=name, spec=TopicSpec(**small))  # type: ignore[arg-type]

    def desired_topics(self) -> Mapping[str, DesiredTopic]:
        return dict(self.topics)

    def problems(self) -> list[Problem]:
        return []

    async def apply(self, manifest: ManifestDocument, preview: bool = False) -> AppliedManifest:
        desired = manifest.topic
        known = self.topics.get(desired.full_name)
        if not preview:
            self.topics[desired.full_name] = DesiredTopic(name=desired.full_name, spec=desired.spec)
        before = manifest_of(known) if known is not None else None
        return AppliedManifest(desired.full_name, "created" if known is None else "configured", before, desired)

    async def delete(self, topic: str) -> None:
        if self.topics.pop(topic, None) is None:
            raise UnknownTopic(topic)

    async def set_paused(self, topic: str, paused: bool) -> None:
        self.topics[topic] = replace(self._known(topic), paused=paused)

    async def change_spec(self, topic: str, before: TopicSpec, patch: SpecPatch) -> None:
        desired = self._known(topic)
        assert desired.spec == before
        resource = to_resource(manifest_of(desired))
        changed = parse_resource({**resource, "spec": patched_spec(resource["spec"], patch)})
        self.topics[topic] = replace(desired, spec=changed.spec)

    def _known(self, topic: str) -> DesiredTopic:
        """Another call may have deleted it meanwhile."""
        if topic not in self.topics:
            raise UnknownTopic(topic)
        return self.topics[topic]

    def desired_brokers(self) -> int:
        return self.count

    def scale_brokers(self, count: int, stop_first: str | None = None) -> None:
        self.count = count

    def restart_broker(self, name: str) -> None:
        self.restarted.append(name)

    def termination_proof(self, incarnation: str, reporting: bool = False) -> TerminationProof | None:
        if incarnation in self.terminated:
            return TerminationProof(self.terminated[incarnation])
        return TerminationProof(self.ended[incarnation], journal_gone=False) if incarnation in self.ended else None

    def is_current_incarnation(self, broker: str, incarnation: str) -> bool | None:
        return None


class StoppingEffectRunner(EffectRunner):
    """Carries out effects until ``left`` of them were begun; what then happens to the next one says ``how``.

    ``before``: it is not begun, nor any other. ``answer_lost``: it is carried out, but the leader gets no answer, and
    begins no other. ``stuck``: it is not begun, but all others are.
    """

    left: int | None = None
    how = "before"
    done = 0
    dead: Container[str] = ()
    """Topics without anything in progress."""

    async def run(self, managed: ManagedTopic, leader: TopicReconciler, effect: Effect) -> None:
        self.done += 1
        if managed.name in self.dead:
            await asyncio.Event().wait()
        number = self.done
        if self.left is not None and number > self.left and (number == self.left + 1 or self.how != "stuck"):
            if self.how == "answer_lost" and number == self.left + 1:
                await super().run(copy.copy(managed), copy.deepcopy(leader), effect)
            await asyncio.Event().wait()
        await super().run(managed, leader, effect)


class RpcAborted(Exception):
    """What ``context.abort`` raised."""


class FakeServicerContext:
    """The part of a gRPC context that a refusal needs."""

    async def abort(self, status: object, message: str, trailing_metadata: object = ()) -> None:
        raise RpcAborted(message)


class LeaderInMemory:
    """One leader. Use ``running_leader`` to run it."""

    def __init__(
        self,
        platform: FakePlatform,
        fleet: FakeFleet,
        store: Store,
        warm_up_us: int = 0,
        tasks: TaskRunner | None = None,
        readiness: Readiness | None = None,
        cleanup: CleanupSettings | None = None,
        merge: MergeSettings | None = None,
    ) -> None:
        self.platform, self.fleet, self.store = platform, fleet, store
        self.pool = ThreadPoolExecutor(4)
        self.owner = ""
        self.reports_paused = False
        self.tasks = tasks or TaskRunner()
        self.parts = build_leader(
            platform,
            fleet,
            StorePool(store, self.pool, RetryPolicy(2.0)),
            StoreSettings(url=store.url),
            clock=virtual_time.now,
            readiness=readiness or Readiness(),
            tasks=self.tasks,
            owner=lambda: self.owner,
            writer_id=f"leader-{uuid.uuid4().hex[:12]}",
            cleanup=cleanup or CleanupSettings(retention_interval_us=WARM_UP),
            merge=merge or MergeSettings(),
            warm_up_us=WARM_UP,
            health_warm_up_us=warm_up_us,
            effect_runner=StoppingEffectRunner,
        )
        assert isinstance(self.parts.effects, StoppingEffectRunner)
        self.effects = self.parts.effects
        self.loop, self.sync, self.queue = self.parts.loop, self.parts.sync, self.parts.queue
        self.topics, self.registry, self.decisions = self.parts.topics, self.parts.registry, self.parts.decisions
        self.topic_deletions, self.groups = self.parts.topic_deletions, self.parts.groups
        self.garbage_collector = self.parts.garbage_collector
        self.health = self.parts.health

    async def call(self, method: str, request: object) -> object:
        """Calls a method of one of the services. Raises RpcAborted."""
        return await handler_of(self.parts.services, method)(request, FakeServicerContext())

    def condition(self, topic: str, type_: str) -> admin_pb2.Condition:
        """That condition of the topic (full name), as ``smq`` shows it."""
        snapshot = snapshot_of(self.topics[topic], self.health.issues(topic))
        return next(c for c in condition_messages(snapshot) if c.type == type_)

    async def report_all(self) -> None:
        """One report of every broker that can be reached."""
        if self.reports_paused:
            return
        for broker in list(self.fleet.brokers.values()):
            if broker.living and broker.answers:
                try:
                    reply = await self.call("Report", broker.report(self.registry.leader))
                    assert isinstance(reply, brokers_pb2.BrokerReportReply)
                    broker.last_answers[reply.leader] = reply.answer
                    broker.draining = broker.draining or reply.drain
                except (RpcAborted, SmqError):
                    continue


def count_of(managed: ManagedTopic) -> int | None:
    """How many messages the topic holds, as the leader knows it."""
    return managed.message_count(managed.readable_ends())


@asynccontextmanager
async def running_leader(*leaders: LeaderInMemory, report_seconds: float = 0.02) -> AsyncIterator[None]:
    """Runs the leaders, with a report of each broker every ``report_seconds``, until the block ends."""

    async def reports() -> None:
        while True:
            for leader in leaders:
                await leader.report_all()
            await asyncio.sleep(report_seconds)

    reporting = asyncio.create_task(reports())
    try:
        for leader in leaders:
            supervise_leader(leader.parts)
        yield
    finally:
        for leader in leaders:
            await leader.loop.stop()
        reporting.cancel()
        await asyncio.gather(reporting, return_exceptions=True)
        for leader in leaders:
            leader.pool.shutdown(wait=False, cancel_futures=True)
