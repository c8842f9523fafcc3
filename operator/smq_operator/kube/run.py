"""Assembles ``smq-operator kube``."""

from __future__ import annotations

import asyncio
import uuid

import structlog

from smq_core.access.modes import SecurityMode
from smq_operator.kube.client.api import KubeApi
from smq_operator.kube.client.events import EventRecorder
from smq_operator.kube.client.kinds import DEPLOYMENTS, NODES, PODS, SEGMENTS, TOPICS
from smq_operator.kube.desired_topics import DesiredTopics
from smq_operator.kube.election.leadership import LeaderElection
from smq_operator.kube.election.lease import LeaseElector
from smq_operator.kube.election.peers import PeerDialer, open_channel, secure_dialer
from smq_operator.kube.informer.cache import ResourceCache
from smq_operator.kube.informer.list_watch import Informer
from smq_operator.kube.informer.watcher import WatchScope
from smq_operator.kube.platform import KubePlatform
from smq_operator.kube.preflight.checks import PreflightChecks
from smq_operator.kube.security.release_security import open_security
from smq_operator.kube.settings import KubeSettings
from smq_operator.kube.termination import TerminationTracker
from smq_operator.leader_process import Election, run_leader
from smq_operator.platform_port import Platform
from smq_operator.runtime import clock
from smq_operator.runtime.readiness import Readiness
from smq_operator.runtime.task_runner import TaskRunner
from smq_storage.process import allocator

log = structlog.get_logger(__name__)


def scopes(kube: KubeSettings) -> list[WatchScope]:
    """What is watched: the Topics that this operator leads, the release's own resources, and Nodes.

    An operator that is bound to a Namespace may lack the permission to read Nodes, and works without them.
    """
    release_labels = {PODS: kube.selector, DEPLOYMENTS: kube.selector}
    return [
        WatchScope((TOPICS, SEGMENTS), kube.namespace),
        WatchScope((PODS, DEPLOYMENTS), kube.home, release_labels),
        WatchScope((NODES,), optional=True),
    ]


async def run(kube: KubeSettings) -> None:
    """Stands by and leads until SIGTERM.

    Raises what ``run_leader`` raises; KubeError and Unavailable if it finds no API server.
    """
    api, cache, desired_topics = KubeApi.connect(), ResourceCache(), DesiredTopics()
    informer = Informer(api=api, cache=cache, parse_topics=desired_topics.parse, clock=clock.now, scopes=scopes(kube))
    termination_tracker = TerminationTracker(cache, clock.now, informer.resync, kube.node_grace_us)
    platform: KubePlatform
    dials: list[PeerDialer] = []
    if kube.security is not SecurityMode.REQUIRED:
        log.warning("security.open", mode=kube.security, message="whoever reaches the ports may do everything")
        dials.append(open_channel)

    def make_platform(address: str, readiness: Readiness, tasks: TaskRunner) -> Platform:
        nonlocal platform
        platform = KubePlatform(
            api=api,
            cache=cache,
            desired_topics=desired_topics,
            informer=informer,
            termination_tracker=termination_tracker,
            settings=kube,
            on_not_ready=readiness.set_not_ready,
            tasks=tasks,
        )
        return platform

    def make_election(address: str, readiness: Readiness, tasks: TaskRunner) -> Election:
        elector = LeaseElector(
            api=api,
            cache=cache,
            clock=clock.now,
            namespace=kube.home,
            name=kube.lease,
            pod=kube.pod,
            address=address,
            on_reconnect=informer.resync,
            dials=dials,
        )
        events = EventRecorder(api, kube.pod or "operator", uuid.uuid4().hex[:12], clock.now)
        preflight = PreflightChecks(api, kube, events)
        return LeaderElection(
            readiness=readiness,
            tasks=tasks,
            api=api,
            cache=cache,
            platform=platform,
            elector=elector,
            events=events,
            preflight=preflight,
        )

    try:
        security = None
        if kube.security.knows_callers:
            security, token = await open_security(api, kube, kube.pod or uuid.uuid4().hex)
            authorities = security.authorities
            dials.append(secure_dialer(lambda: authorities.signing.roots, token))
        await run_leader(kube, make_platform, make_election, security)
    finally:
        informer.stop()
        api.close()


def main(kube: KubeSettings) -> None:
    # Hundreds of threads that mostly wait need no separate malloc arenas, which would keep freed memory.
    allocator.set_malloc({allocator.ARENA_MAX: 2})
    asyncio.run(run(kube))
