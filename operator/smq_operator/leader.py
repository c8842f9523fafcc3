"""One leader process put together: store, world, loop, service, HTTP; started in order, stopped in the reverse."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import structlog

from smq_core.errors import SmqError, StoreUnfit
from smq_core.fleet import FleetPolicy
from smq_operator import clock
from smq_operator.calls import Brokers
from smq_operator.collect import Collector
from smq_operator.deaf import Deaf
from smq_operator.desk import Desk
from smq_operator.doubts import Doubts
from smq_operator.effects import Effects
from smq_operator.endings import Endings
from smq_operator.fleet import FleetKeeper
from smq_operator.groups import Groups
from smq_operator.http import HttpServer
from smq_operator.loop import LeaderLoop
from smq_operator.metrics import Metrics
from smq_operator.orphans import Orphans
from smq_operator.registry import Registry
from smq_operator.service import GrpcServer
from smq_operator.settings import Settings, host_port
from smq_operator.world import World
from smq_storage.conditional import Patience
from smq_storage.probe import probe
from smq_storage.store import Store

log = structlog.get_logger()

STORE_THREADS = 32
PUT_PATIENCE = 10.0
PROBE_AGAIN_AFTER = 2.0


class LeadershipLost(Exception):
    """Another process leads now; this one must end, and may be started again."""


class Candidacy(Protocol):
    """Whether this process may lead, where several stand by."""

    async def elected(self) -> None:
        """Returns when it leads."""
        ...

    async def lost(self) -> None:
        """Returns when it leads no more."""
        ...

    async def leave(self) -> None:
        """It stops, and another may lead at once."""
        ...

    def beside(self) -> Sequence[Coroutine[Any, Any, None]]:
        """What runs beside the loop while it leads."""
        ...


async def lead(
    settings: Settings,
    make_world: Callable[[str], World],
    elastic: FleetPolicy | None = None,
    stand: Callable[[Desk], Candidacy] | None = None,
) -> None:
    """Leads until SIGTERM or SIGINT. ``make_world`` is given the address under which this leader is reached.

    With ``elastic`` the number of brokers follows the load; without it, the world's wish stands. With ``stand`` it
    leads only when it is elected; without it, at once.

    Raises InvalidRequest when a port cannot be had, StoreUnfit when the store must not be used, LeadershipLost.
    """
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    server = GrpcServer(settings.listen)
    address = settings.advertise or f"{host_port(settings.listen)[0]}:{server.port}"
    store, pool, ending = settings.store.open(), ThreadPoolExecutor(STORE_THREADS, "store"), threading.Event()
    patience = Patience(PUT_PATIENCE, wait=ending.wait)
    world, brokers = make_world(address), Brokers()
    effects = Effects(store, brokers, pool, clock.now, patience)
    loop = LeaderLoop(world, Registry(world), store, effects, clock.now, patience)
    loop.owner = settings.owner
    groups = Groups(loop, patience)
    collector = Collector(loop, groups, settings.collecting, patience)
    doubts, orphans = Doubts(loop, brokers), Orphans(loop, brokers)
    endings = Endings(loop, brokers, patience)
    desk = Desk(loop, brokers, doubts, groups, orphans, Deaf(loop), endings, settings.store, not_ready="starting")
    http = HttpServer(lambda: desk.not_ready, Metrics(desk, collector).exposition)
    candidacy = stand(desk) if stand is not None else None
    leading: asyncio.Task[None] | None = None
    lost = started = False
    try:
        http_port = await http.start(settings.http) if settings.http else None
        await server.start(desk)
        started = await _fit(store, pool, desk, stop)
        if (
            started
            and await _unless(stop, world.start(loop.world_changed))
            and (candidacy is None or await _unless(stop, candidacy.elected()))
        ):
            leading = asyncio.create_task(loop.run())
            loop.spawn(groups.keep())
            loop.spawn(collector.keep())
            loop.spawn(endings.keep())
            if elastic is not None:
                loop.spawn(FleetKeeper(loop, elastic).keep())
            for task in candidacy.beside() if candidacy is not None else ():
                loop.spawn(task)
            desk.not_ready = desk.standby = desk.leader = ""
            log.info("leader.ready", address=address, http=http_port, store=repr(store))
            if candidacy is None:
                await stop.wait()
            else:
                lost = await _unless(stop, candidacy.lost())
        log.info("leader.stopping")
        desk.not_ready = "stopping"
        ending.set()
        await loop.stop()
        if leading is not None:
            await leading
        if candidacy is not None and not lost:
            await candidacy.leave()
        await server.stop()
        if started:
            await world.stop()
        log.info("leader.stopped")
    finally:
        ending.set()
        http.close()
        await server.stop()
        brokers.close()
        pool.shutdown(wait=False, cancel_futures=True)
    if lost:
        raise LeadershipLost("another operator leads now")


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Runs it. False when the process is to stop before it is done; then it is cancelled."""
    tasks = [asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    done = tasks[0].done()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    if done:
        tasks[0].result()
    return done


async def _fit(store: Store, pool: ThreadPoolExecutor, desk: Desk, stop: asyncio.Event) -> bool:
    """True when the store has proved fit, however long it is away; False when the process is to stop before that."""
    while not stop.is_set():
        try:
            await asyncio.get_running_loop().run_in_executor(pool, probe, store)
            return not stop.is_set()
        except StoreUnfit:
            raise
        except SmqError as error:
            desk.not_ready = f"the filer does not answer as it should: {error.message}"
            log.error(
                "store.unavailable",
                error=error.code,
                message=error.message,
                advice="is the filer running, and are --filer-url, --filer-endpoint and the AWS_ credentials right?",
                again_in=PROBE_AGAIN_AFTER,
            )
        try:
            async with asyncio.timeout(PROBE_AGAIN_AFTER):
                await stop.wait()
        except TimeoutError:
            continue
    return False
