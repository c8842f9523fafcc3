"""An operator on a Kubernetes API in memory of which the n-th call, task start or callback fails."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

from smq_operator.kube.client.errors import ApiServerUnreachable
from smq_operator.kube.client.events import EventRecorder
from smq_operator.kube.client.kinds import Kind, Resource
from smq_operator.kube.desired_topics import DesiredTopics
from smq_operator.kube.election.leadership import LeaderElection
from smq_operator.kube.election.lease import LeaseElector
from smq_operator.kube.informer.cache import ResourceCache
from smq_operator.kube.informer.list_watch import Informer
from smq_operator.kube.informer.watcher import ResourceWatcher
from smq_operator.kube.platform import KubePlatform
from smq_operator.kube.preflight.checks import PreflightChecks
from smq_operator.kube.run import scopes
from smq_operator.kube.settings import KubeSettings
from smq_operator.kube.termination import TerminationTracker
from smq_operator.runtime.readiness import Readiness
from smq_operator.runtime.task_runner import TaskRunner
from smq_storage.object_store.store import Store
from support.fault_injection.leader_faults import FaultInjected
from support.in_memory.brokers import FakeFleet
from support.in_memory.leader import LeaderInMemory
from support.kube.api_in_memory import KubeApiInMemory
from support.virtual_time import now

KUBE_KINDS = ("call", "call without answer", "task start", "comparison", "cache update", "cache change", "Event")


class KubeFault:
    """Counts the opportunities of one kind, and fails number ``at`` (from 1; 0: none)."""

    def __init__(self, kind: str, at: int) -> None:
        assert kind in KUBE_KINDS
        self.kind, self.at, self.count = kind, at, 0

    @property
    def happened(self) -> bool:
        return 0 < self.at <= self.count

    def check(self, kind: str) -> None:
        """Counts if the fault is of this kind, and raises at its number."""
        if kind != self.kind:
            return
        self.count += 1
        if self.count == self.at:
            raise ApiServerUnreachable("injected") if kind == "call without answer" else FaultInjected(kind)

    def before_call(self) -> None:
        self.check("call")
        self.check("call without answer")

    def wrap(self, kind: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            self.check(kind)
            return call(*args, **kwargs)

        return wrapped

    def start_task(self, start: Callable[..., Any], work: Any, *args: Any, kind: str = "task start") -> Any:
        try:
            self.check(kind)
        except FaultInjected:
            work.close()
            raise
        return start(work, *args)


class WatcherInMemory(ResourceWatcher):
    """Gets its events from the API in memory instead of kopf."""

    api: KubeApiInMemory

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.api.watches.append(self._on_change)
        for kind in self._scope.kinds:
            for resource in list(self.api.there(kind).values()):
                self._call(self._on_event, kind, None, dict(resource))

    def _on_change(self, kind: Kind, event: str, resource: Resource) -> None:
        namespace = resource["metadata"].get("namespace", "")
        if kind in self._scope.kinds and self._scope.namespace in ("", namespace):
            self._call(self._on_event, kind, event, resource)


class KubeOperator:
    """What ``smq-operator kube`` consists of, over an API, brokers and a store in memory."""

    _numbers = itertools.count()

    def __init__(self, api: KubeApiInMemory, fleet: FakeFleet, store: Store, fault: KubeFault) -> None:
        settings = KubeSettings(filer_url="memory://", POD_NAMESPACE="smq")
        self.cache, self.fault, desired_topics = ResourceCache(), fault, DesiredTopics()
        any_api: Any = api
        cache: Any = self.cache
        cache.put = fault.wrap("cache update", cache.put)
        self.informer = Informer(
            api=any_api, cache=self.cache, parse_topics=desired_topics.parse, clock=now, scopes=scopes(settings)
        )
        tracker = TerminationTracker(self.cache, now, self.informer.resync, settings.node_grace_us)
        readiness = self.readiness = Readiness(not_ready_reason="starting")
        self.fatal = asyncio.Event()
        tasks: Any = TaskRunner(on_fatal=self.fatal.set)
        tasks.spawn = partial(fault.start_task, tasks.spawn)
        self.platform = KubePlatform(
            api=any_api,
            cache=self.cache,
            desired_topics=desired_topics,
            informer=self.informer,
            termination_tracker=tracker,
            settings=settings,
            on_not_ready=readiness.set_not_ready,
            tasks=tasks,
        )
        elector = LeaseElector(
            api=any_api,
            cache=self.cache,
            clock=now,
            namespace="smq",
            name=settings.lease,
            pod="",
            address="operator:1",
            on_reconnect=self.informer.resync,
        )
        events: Any = EventRecorder(any_api, "operator", f"p{next(self._numbers)}", now)
        events.record = fault.wrap("Event", events.record)
        preflight = PreflightChecks(any_api, settings, events)
        self.election = LeaderElection(
            readiness=readiness,
            tasks=tasks,
            api=any_api,
            cache=self.cache,
            platform=self.platform,
            elector=elector,
            events=events,
            preflight=preflight,
        )
        platform: Any = self.platform
        self.leader = LeaderInMemory(platform, fleet, store, tasks=tasks, readiness=readiness)
        self.tasks: TaskRunner = tasks
        listeners = self.cache._listeners
        listeners._listeners = [fault.wrap("cache change", each) for each in listeners._listeners]
