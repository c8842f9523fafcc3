"""Whatever fails once in an operator on Kubernetes: afterwards it works, or its process has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from structlog.testing import capture_logs

from smq_core.model.incarnation_ids import format_incarnation
from smq_operator.kube.broker_pools import POOL_LABEL
from smq_operator.kube.client.kinds import DEPLOYMENTS, LEASES, NODES, PODS, SEGMENTS, TOPICS, Resource
from smq_operator.kube.informer import list_watch
from smq_operator.kube.settings import COMPONENT_LABEL, RELEASE_LABEL
from smq_operator.kube.status import reconciler
from smq_storage.object_store.store import Store, open_store
from support.fault_injection.kube_faults import KUBE_KINDS, KubeFault, KubeOperator, WatcherInMemory
from support.fault_injection.leader_faults import FaultInjected
from support.in_memory.brokers import FakeBroker, FakeFleet
from support.in_memory.leader import running_leader
from support.kube.api_in_memory import KubeApiInMemory
from support.kube.manifest_cases import manifest
from support.kube.resources_in_memory import merged
from support.virtual_time import now, run_in_virtual_time
from support.waiting import wait_until

BROKERS = 4
# Seconds. Before the next periodic list, which would hide that a change was lost.
LONGEST = 60.0
AT = ("default", "kept")
READY = {"type": "Ready", "status": "True"}
READY_NODE = {"status": {"conditions": [READY]}}


class KubeHistory:
    """A Topic is created, a Pod dies, a Segment is split by annotation, brokers are added, the Topic is deleted."""

    def __init__(self, fault: KubeFault) -> None:
        self.fault = fault
        self.api = KubeApiInMemory(fault.before_call)
        self.store: Store = open_store("memory://")
        self.fleet = FakeFleet(self.store)
        self.done: list[str] = []
        self.started = False
        self.put_topic("kept")
        self.put_topic("other")
        for name, replicas in (("broker", BROKERS), ("operator", 1)):
            self.api.put(DEPLOYMENTS, _deployment(name, replicas))
        for number in range(BROKERS):
            self.add_broker(number)
        self.operator: KubeOperator | None = None

    def put_topic(self, name: str) -> None:
        made = manifest({"partitions": 16, "segments": {"min": 1}}, name=name)
        made["metadata"] |= {"namespace": "default", "generation": 1}
        self.api.put(TOPICS, made)

    def add_broker(self, number: int) -> FakeBroker:
        name = f"b{number}"
        self.api.put(NODES, {"metadata": {"name": f"node-{name}"}} | READY_NODE)
        labels = {COMPONENT_LABEL: "broker", POOL_LABEL: "broker"}
        pod = self.api.put(
            PODS,
            {
                "metadata": {"name": name, "namespace": "smq", "labels": labels},
                "spec": {"nodeName": f"node-{name}", "containers": []},
                "status": {"containerStatuses": [{"state": {"running": {}}}]},
            },
        )
        incarnation = format_incarnation(pod["metadata"]["uid"], now() // 1_000_000, f"{number:08x}")
        return self.fleet.add(name, incarnation)

    @property
    def ended(self) -> bool:
        """Whether the process ends now, so that another operator leads."""
        return self.operator is not None and self.operator.tasks.failure is not None

    async def step(self, what: str, condition: Callable[[], Any]) -> None:
        async with asyncio.timeout(LONGEST):
            await wait_until(lambda: condition() or self.ended, what, pause=0.1)
        if self.ended:
            raise asyncio.CancelledError
        self.done.append(what)

    async def run(self) -> None:
        try:
            operator = self.operator = KubeOperator(self.api, self.fleet, self.store, self.fault)
            await operator.platform.start(operator.leader.loop.platform_changed)
            electing = asyncio.ensure_future(operator.election.elected())
            await wait_until(lambda: electing.done() or self.ended, "elected")
            if self.ended:
                electing.cancel()
                return
            electing.result()
        except FaultInjected:  # the process ends if it cannot start
            return
        try:
            async with running_leader(operator.leader, report_seconds=0.5):
                for name, run in operator.election.background_tasks(operator.leader.parts).items():
                    operator.tasks.supervise(name, run)
                operator.readiness.set_leading()
                self.started = True
                await self.go()
        except asyncio.CancelledError:
            assert self.ended
        except FaultInjected:
            if self.started:
                raise

    async def go(self) -> None:
        await self.step("shown", lambda: self.is_shown(1) and self.is_ready("other"))
        primary = self.operator.leader.topics["default/kept"].layout.segments[0].primary
        victim = self.fleet.brokers[primary.incarnation]
        victim.living = False
        terminated = {"containerStatuses": [{"state": {"terminated": {}}}], "phase": "Failed"}
        pod = self.api.there(PODS)["smq", victim.replica.broker]
        self.api.put(PODS, pod | {"status": terminated})
        self.api.remove(PODS, ("smq", victim.replica.broker))
        before = {each["metadata"]["name"] for each in self.open_segments()}
        await self.step(
            "failover", lambda: self.is_shown(1) and self.open_segments()[0]["metadata"]["name"] not in before
        )
        await self.retried("split", self.split)
        await self.step("split shown", lambda: self.is_shown(2))
        await self.retried("scaled", self.scale)
        self.put_topic("later")
        await self.step("later shown", lambda: self.is_ready("later"))
        self.api.remove(TOPICS, AT)
        await self.step("deleted", lambda: "default/kept" not in self.operator.leader.topics)
        await self.step("renewed", self.lease_is_renewed())
        with suppress(FaultInjected):  # the process ends in any case, and says that it did not end in order
            await self.operator.election.leave()
        self.done.append("everything")

    # ---- what users see

    def open_segments(self) -> list[Resource]:
        every = [each for each in self.api.there(SEGMENTS).values() if each["spec"]["topic"] == AT[1]]
        return [each for each in every if each.get("status", {}).get("phase") == "Open"]

    def is_shown(self, segments: int) -> bool:
        """Whether the resources show the layout, and the layout has that many open segments."""
        managed = self.operator.leader.topics.get("default/kept")
        if managed is None or managed.layout is None or not managed.is_stable:
            return False
        names = {segment.name for segment in managed.layout.segments}
        shown = {each["metadata"]["name"] for each in self.open_segments()}
        return len(names) == segments and names == shown and self.is_ready("kept")

    def is_ready(self, topic: str) -> bool:
        conditions = self.api.there(TOPICS)["default", topic].get("status", {}).get("conditions", ())
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

    async def split(self) -> bool:
        (segment,) = self.open_segments()
        note = {"metadata": {"annotations": {"seaweedmq.io/split": "true"}}}
        self.api.put(SEGMENTS, merged(segment, note))
        return True

    async def scale(self) -> bool:
        self.operator.platform.scale_brokers(BROKERS + 1)
        await asyncio.sleep(1)
        return bool(self.api.there(DEPLOYMENTS)["smq", "broker"]["spec"]["replicas"] == BROKERS + 1)

    async def retried(self, what: str, request: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(LONGEST):
            while not self.ended:
                try:
                    if await request():
                        self.done.append(what)
                        return
                except FaultInjected:
                    continue
        raise asyncio.CancelledError

    def lease_is_renewed(self) -> Callable[[], bool]:
        (before,) = self.api.there(LEASES).values()
        version = before["metadata"]["resourceVersion"]
        return lambda: next(iter(self.api.there(LEASES).values()))["metadata"]["resourceVersion"] != version


def _deployment(name: str, replicas: int) -> Resource:
    labels = {COMPONENT_LABEL: name, RELEASE_LABEL: "smq", POOL_LABEL: name}
    annotations = {"seaweedmq.io/min-brokers": "1", "seaweedmq.io/max-brokers": str(BROKERS + 1)}
    created = {"creationTimestamp": "2024-01-01T00:00:00Z"}
    metadata = {"name": name, "namespace": "smq", "labels": labels, "annotations": annotations}
    return {"metadata": metadata | created, "spec": {"replicas": replicas, "template": {"spec": {}}}}


class FaultyAsyncio:
    """The module asyncio, as the status reconciler sees it, of which a task start fails."""

    def __init__(self, fault: KubeFault) -> None:
        self._fault = fault

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    def ensure_future(self, work: Any) -> Any:
        return self._fault.start_task(asyncio.ensure_future, work, kind="comparison")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KUBE_KINDS)
def test_after_the_nth_fault_the_operator_works_or_has_ended(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = []
    at = 0
    while True:
        fault = KubeFault(kind, at)
        history = KubeHistory(fault)
        monkeypatch.setattr(WatcherInMemory, "api", history.api, raising=False)
        monkeypatch.setattr(list_watch, "ResourceWatcher", WatcherInMemory)
        monkeypatch.setattr(list_watch, "INITIAL_RESYNC_SECONDS", ())
        monkeypatch.setattr(reconciler, "asyncio", FaultyAsyncio(fault))
        try:
            with capture_logs():  # tracebacks take longer than all the rest
                run_in_virtual_time(history.run())
        except Exception as error:
            raise AssertionError(f"{kind} {at}: after {history.done}: {error!r}") from error
        works = history.done[-1:] == ["everything"]
        assert works or history.ended or not history.started, f"{kind} {at}: {history.done}"
        outcomes.append(works)
        if at and not fault.happened:
            break
        at += 1
    assert at > 2, "there was nothing to fail"
    assert 2 * outcomes.count(True) > at, outcomes
