"""One leader process: starts store, platform, leader, gRPC service and HTTP in order, and stops them in reverse."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol, TypeAlias

import structlog

from smq_core.access.modes import SecurityMode
from smq_core.errors import SmqError, StoreUnsupported
from smq_core.model.entities import SECOND
from smq_core.scaling.broker_fleet import FleetPolicy
from smq_operator.api.server import make_server
from smq_operator.brokers.calls import BrokerClients
from smq_operator.brokers.dialer import OPEN, BrokerDialer, SecureDialer
from smq_operator.dashboard.overview import Overview, ShownLag
from smq_operator.dashboard.pages import DashboardPages
from smq_operator.leader import Leader, build_leader
from smq_operator.metrics import Metrics
from smq_operator.platform_port import Platform
from smq_operator.reconcile.fleet import FleetReconciler
from smq_operator.runtime import clock
from smq_operator.runtime.http_server import HttpServer
from smq_operator.runtime.problems import CERTIFICATES
from smq_operator.runtime.readiness import Readiness
from smq_operator.runtime.settings import Settings, advertised
from smq_operator.runtime.store_pool import StorePool
from smq_operator.runtime.task_runner import TaskRunner
from smq_operator.security.leader_security import LeaderSecurity
from smq_operator.status.health import describe_outage
from smq_storage.catalog.root_format import ensure_root_format
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.conformance_probe import check_conformance
from smq_storage.object_store.store import Store
from smq_storage.process.shutdown_steps import Shutdown, stop_signals

log = structlog.get_logger(__name__)

STORE_THREADS = 32
PUT_RETRY_TIMEOUT_SECONDS = 10.0
STORE_PROBE_INTERVAL_SECONDS = 2.0


# Starts what runs beside the loop for as long as this process leads.
BackgroundTask: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


class LeadershipLost(Exception):
    """Another process leads now. This one must end, and may be started again."""


class LeaderFailed(Exception):
    """A task failed without which there is no leader, or the shutdown was not in order. Start the process again."""


class Election(Protocol):
    """Decides whether this process may lead, where several stand by."""

    async def elected(self) -> None:
        """Returns when this process leads."""
        ...

    def owner(self) -> str:
        """The name of the platform that owns the topics; empty before the election."""
        ...

    async def leadership_lost(self) -> None:
        """Returns when this process does not lead any more."""
        ...

    async def leave(self) -> None:
        """Gives up the leadership, so that another process may lead at once."""
        ...

    def background_tasks(self, leader: Leader) -> Mapping[str, BackgroundTask]:
        """What runs beside the loop while this process leads, by name."""
        ...


class Standalone:
    """A process without election: it leads at once, and for as long as it runs.

    With ``elastic`` the number of brokers follows the load; without it, it stays what the platform says.
    """

    def __init__(self, owner: str, elastic: FleetPolicy | None) -> None:
        self._owner = owner
        self._elastic = elastic

    async def elected(self) -> None:
        return

    def owner(self) -> str:
        return self._owner

    async def leadership_lost(self) -> None:
        await asyncio.Event().wait()

    async def leave(self) -> None:
        return

    def background_tasks(self, leader: Leader) -> Mapping[str, BackgroundTask]:
        if self._elastic is None:
            return {}
        return {"fleet": fleet_reconciler(leader, lambda: self._elastic).run}


def fleet_reconciler(leader: Leader, policy: Callable[[], FleetPolicy | None]) -> FleetReconciler:
    return FleetReconciler(
        platform=leader.platform,
        registry=leader.registry,
        topics=leader.topics,
        assignments=leader.assignments,
        decisions=leader.decisions,
        clock=leader.clock,
        policy=policy,
    )


def overview_of(leader: Leader, security: SecurityMode = SecurityMode.DISABLED) -> Overview:
    """What the leader's page shows."""
    return Overview(
        topics=leader.topics,
        registry=leader.registry,
        decisions=leader.decisions,
        health=leader.health,
        clock=leader.clock,
        not_ready_reason=lambda: leader.readiness.not_ready_reason,
        lags_of=lambda topic: [
            ShownLag(it.group.name, it.total.messages, it.total.age / SECOND)
            for it in leader.group_lags.reports.get(topic, ())
        ],
        security=security,
    )


async def run_leader(
    settings: Settings,
    make_platform: Callable[[str, Readiness, TaskRunner], Platform],
    make_election: Callable[[str, Readiness, TaskRunner], Election],
    security: LeaderSecurity | None = None,
) -> None:
    """Leads, once it is elected, until SIGTERM, SIGINT or SIGHUP. The factories get the address of this leader.

    Raises InvalidRequest if a port is taken, StoreUnsupported if the store must not be used, LeadershipLost,
    LeaderFailed.
    """
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in stop_signals():
        loop.add_signal_handler(number, stop.set)
    permissive = settings.security is SecurityMode.PERMISSIVE
    server = make_server(settings.listen, security, lambda: leader.topics, permissive=permissive)
    address = advertised(settings, server.port)
    store, pool, stopping = settings.store.open(), ThreadPoolExecutor(STORE_THREADS, "store"), threading.Event()
    dialer: BrokerDialer = OPEN if security is None else SecureDialer(security.certificate, permissive=permissive)
    readiness, tasks = Readiness(not_ready_reason="starting"), TaskRunner(on_fatal=stop.set)
    brokers = BrokerClients(dialer=dialer)
    loop.set_exception_handler(tasks.on_callback_error)
    platform = make_platform(address, readiness, tasks)
    election = make_election(address, readiness, tasks)
    leader = build_leader(
        platform,
        brokers,
        StorePool(store, pool, RetryPolicy(PUT_RETRY_TIMEOUT_SECONDS, wait=stopping.wait)),
        settings.store,
        clock=clock.now,
        readiness=readiness,
        tasks=tasks,
        owner=election.owner,
        writer_id=f"leader-{uuid.uuid4().hex[:12]}",
        cleanup=settings.cleanup,
        merge=settings.merge,
        dialer=dialer,
        security=security,
        session_role=settings.filer_session_role,
    )
    metrics = Metrics(
        topics=leader.topics,
        registry=leader.registry,
        decisions=leader.decisions,
        loop=leader.loop,
        filer_clock=leader.filer_clock,
        garbage_collector=leader.garbage_collector,
        file_lists=leader.file_lists,
        merger=leader.merger,
        group_lags=leader.group_lags,
        kafka_lags=leader.kafka_lag_samples,
        tasks=tasks,
        clock=leader.clock,
        mode=settings.security,
        security=security,
    )
    overview = overview_of(leader, settings.security)
    http = HttpServer(
        ready=lambda: readiness.not_ready_reason,
        metrics=metrics.exposition,
        add_pages=DashboardPages(overview, at_loopback_only=settings.page_at_loopback_only).add_to,
        warning=lambda: f"ready, but {describe_outage(leader.health.filer)}" if leader.health.filer is not None else "",
        hosts=settings.public_hosts,
    )
    leadership_lost = platform_started = False
    shutdown = Shutdown(lambda step, error: log.error("shutdown.step_failed", step=step, exc_info=error))
    try:
        http_port = await http.start(settings.http) if settings.http else None
        await server.start(leader.services)
        if security is not None:
            authorities = security.authorities
            report = partial(tasks.problems.show, CERTIFICATES)
            follow = partial(authorities.run, lambda: readiness.leads, leader.brokers_behind, report)
            tasks.supervise("authorities", follow)
        if await _wait_for_store(store, pool, readiness, stop):
            platform_started = True
            if await _run_unless_stopped(
                stop, platform.start(leader.loop.platform_changed)
            ) and await _run_unless_stopped(stop, election.elected()):
                supervise_leader(leader, {**election.background_tasks(leader), "dashboard": overview.run})
                readiness.set_leading()
                log.info("leader.ready", address=address, http=http_port, store=repr(store))
                leadership_lost = await _run_unless_stopped(stop, election.leadership_lost())
    finally:
        log.info("leader.stopping")
        readiness.set_not_ready("stopping")
        stopping.set()
        await shutdown.run_async("ending the tasks", leader.loop.stop)
        if not leadership_lost:
            await shutdown.run_async("leaving the election", election.leave)
        if platform_started:  # ends the brokers in local mode, which report to the server until they have ended
            await shutdown.run_async("stopping the platform", platform.stop)
        await shutdown.run_async("stopping the gRPC server", server.stop)
        await shutdown.run_async("stopping the HTTP server", http.stop)
        shutdown.run("closing the connections to brokers", brokers.close)
        shutdown.run("closing the store's threads", lambda: pool.shutdown(wait=False, cancel_futures=True))
        log.info("leader.stopped", failed=shutdown.failed)
    if leadership_lost:
        raise LeadershipLost("another operator leads now")
    if tasks.failure is not None:
        raise LeaderFailed(str(tasks.failure)) from tasks.failure
    if shutdown.failed is not None:
        raise LeaderFailed(f"the leader stopped, but not in order: {shutdown.failed}")


def supervise_leader(leader: Leader, more: Mapping[str, BackgroundTask] | None = None) -> None:
    """Starts everything that runs while this process leads: the loop, which ends the process if it fails, and the rest,
    which is restarted.
    """
    tasks = leader.tasks
    tasks.supervise("reconcile", leader.loop.run, restart=False)
    tasks.supervise("groups", leader.groups.run)
    tasks.supervise("group_lags", leader.group_lags.run)
    tasks.supervise("kafka_group_lags", leader.kafka_lag_samples.run)
    tasks.supervise("garbage-collection", leader.garbage_collector.run)
    tasks.supervise("file-lists", leader.file_lists.run)
    tasks.supervise("small-files", leader.merger.run)
    tasks.supervise("atomic-publishes", leader.publishes.run)
    tasks.supervise("topic-deletions", leader.topic_deletions.run)
    tasks.supervise("health", leader.health.run)
    for name, run in (more or {}).items():
        tasks.supervise(name, run)


async def _run_unless_stopped(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Runs ``work``. False if the process has to stop before ``work`` is done, which is then cancelled."""
    tasks = [asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    done = tasks[0].done()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    if done:
        tasks[0].result()
    return done


def _check_store(store: Store) -> None:
    check_conformance(store)
    ensure_root_format(store, RetryPolicy(PUT_RETRY_TIMEOUT_SECONDS))


async def _wait_for_store(store: Store, pool: ThreadPoolExecutor, readiness: Readiness, stop: asyncio.Event) -> bool:
    """Waits until the store can be used, however long that takes. False if the process has to stop before that."""
    while not stop.is_set():
        try:
            await asyncio.get_running_loop().run_in_executor(pool, _check_store, store)
            return not stop.is_set()
        except StoreUnsupported:
            raise
        except SmqError as error:
            readiness.not_ready_reason = f"the filer does not answer as it should: {error.message}"
            log.error(
                "store.unavailable",
                error=error.code,
                message=error.message,
                advice="is the filer running, and are --filer-url, --filer-endpoint and the AWS_ credentials right?",
                retry_in_seconds=STORE_PROBE_INTERVAL_SECONDS,
            )
        try:
            async with asyncio.timeout(STORE_PROBE_INTERVAL_SECONDS):
                await stop.wait()
        except TimeoutError:
            continue
    return False
