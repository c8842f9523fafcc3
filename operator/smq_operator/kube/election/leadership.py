"""One operator Pod of several: it is on standby, is elected, leads, and may lose the leadership."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping

import structlog

from smq_operator.kube.client.api import KubeApi
from smq_operator.kube.client.events import EventRecorder
from smq_operator.kube.election.lease import LeaseElector
from smq_operator.kube.informer.cache import ResourceCache
from smq_operator.kube.platform import KubePlatform
from smq_operator.kube.preflight.checks import PreflightChecks
from smq_operator.kube.status.reconciler import StatusReconciler
from smq_operator.leader import Leader
from smq_operator.leader_process import BackgroundTask, fleet_reconciler
from smq_operator.runtime.readiness import Readiness
from smq_operator.runtime.task_runner import TaskRunner

log = structlog.get_logger(__name__)

NO_LEADER = "no leader is elected yet, try again in a moment"


class LeaderElection:
    """Lets this process take part in the election. Create it on the event loop."""

    def __init__(
        self,
        *,
        readiness: Readiness,
        tasks: TaskRunner,
        api: KubeApi,
        cache: ResourceCache,
        platform: KubePlatform,
        elector: LeaseElector,
        events: EventRecorder,
        preflight: PreflightChecks,
    ) -> None:
        self._readiness = readiness
        self._tasks = tasks
        self._api = api
        self._cache = cache
        self._platform = platform
        self._elector = elector
        self._events = events
        self._preflight = preflight
        self._owner = ""
        self._elected, self._lost = asyncio.Event(), asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        tasks.supervise("events", events.run)
        tasks.supervise("readiness-events", lambda: preflight.report_readiness(lambda: readiness.not_ready_reason))

    async def elected(self) -> None:
        await self._preflight.wait_until_passed(self._readiness.set_not_ready)
        self._tasks.supervise("preflight", self._preflight.run)
        # Not restarted: what the candidate knows of its Lease may be wrong after an unexpected error.
        self._running = self._tasks.supervise("election", lambda: self._elector.run(self._on_poll), restart=False)
        await self._elected.wait()
        # By it a new leader recognizes topics that were deleted while no operator ran.
        self._owner = self._elector.identity

    def owner(self) -> str:
        return self._owner

    async def leadership_lost(self) -> None:
        await self._lost.wait()
        log.error(
            "leader.lost",
            leader=self._elector.holder,
            message="another operator leads; this process exits, and is a standby when it is restarted",
        )

    async def leave(self) -> None:
        if self._running is not None:
            self._running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._running
        await self._elector.leave()

    def background_tasks(self, leader: Leader) -> Mapping[str, BackgroundTask]:
        status = StatusReconciler(
            topics=leader.topics,
            topic_events=leader.events,
            platform=leader.platform,
            decisions=leader.decisions,
            requests=leader.requests,
            clock=leader.clock,
            api=self._api,
            cache=self._cache,
            events=self._events,
            health=leader.health,
            problems=leader.tasks.problems,
        )
        return {"fleet": fleet_reconciler(leader, self._platform.policy).run, "status": status.run}

    def _on_poll(self) -> None:
        candidate = self._elector.candidate
        if candidate.lost:
            self._readiness.leader_address, self._readiness.standby_reason = self._elector.holder, NO_LEADER
            self._lost.set()
        elif candidate.leads:
            self._elected.set()
        elif not self._elected.is_set():
            holder = self._elector.holder
            if holder and holder != self._readiness.leader_address:
                log.info("leader.standby", leader=holder)
            self._readiness.leader_address, self._readiness.standby_reason = holder, NO_LEADER
            self._readiness.not_ready_reason = "" if holder else self._elector.problem
