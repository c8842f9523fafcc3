"""One operator Pod among several: it stands by, is elected, leads, and may lose."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Sequence
from typing import Any

import structlog

from smq_core.fleet import FleetPolicy
from smq_core.sealing import Liveness
from smq_operator.desk import Desk
from smq_operator.fleet import FleetKeeper
from smq_operator.kube.api import KubeApi
from smq_operator.kube.cache import Cache
from smq_operator.kube.checks import Checks
from smq_operator.kube.deaths import Deaths
from smq_operator.kube.events import EventWriter
from smq_operator.kube.lease import Seat
from smq_operator.kube.projector import Projector
from smq_operator.kube.sync import Sync
from smq_operator.kube.world import KubeWorld

log = structlog.get_logger()

NOBODY = "none leads yet, ask again in a moment"


class Stand:
    """The candidacy of this process; make it on the event loop."""

    def __init__(
        self,
        desk: Desk,
        api: KubeApi,
        cache: Cache,
        world: KubeWorld,
        sync: Sync,
        deaths: Deaths,
        seat: Seat,
        events: EventWriter,
        checks: Checks,
    ) -> None:
        self._desk = desk
        self._api = api
        self._cache = cache
        self._world = world
        self._seat = seat
        self._events = events
        self._checks = checks
        self._elected, self._lost = asyncio.Event(), asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        world.waits = self._waits
        seat.back = sync.again
        deaths.heard = self._heard
        desk.loop.spawn(events.keep())
        desk.loop.spawn(checks.tell(lambda: desk.not_ready))

    async def elected(self) -> None:
        await self._checks.passed(self._waits)
        self._desk.loop.spawn(self._checks.keep())
        self._running = self._desk.loop.spawn(self._seat.run(self._looked))
        await self._elected.wait()
        # Topics that were deleted while no operator ran are known by it.
        self._desk.loop.owner = self._seat.identity

    async def lost(self) -> None:
        await self._lost.wait()
        log.error(
            "leader.lost",
            leader=self._seat.holder,
            message="another operator leads; this process ends, and stands by when it is started again",
        )

    async def leave(self) -> None:
        if self._running is not None:
            self._running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._running
        await self._seat.leave()

    def beside(self) -> Sequence[Coroutine[Any, Any, None]]:
        loop = self._desk.loop
        return (
            _Fleet(self._desk, self._world).keep(),
            Projector(loop, self._api, self._cache, self._events).keep(),
        )

    def _waits(self, why: str) -> None:
        self._desk.not_ready = why

    def _looked(self) -> None:
        candidate = self._seat.candidate
        if candidate.lost:
            self._desk.leader, self._desk.standby = self._seat.holder, NOBODY
            self._lost.set()
        elif candidate.leads:
            self._elected.set()
        elif not self._elected.is_set():
            holder = self._seat.holder
            if holder and holder != self._desk.leader:
                log.info("leader.standby", leader=holder)
            self._desk.leader, self._desk.standby = holder, NOBODY
            self._desk.not_ready = "" if holder else self._seat.trouble

    def _heard(self, incarnation: str) -> bool:
        loop = self._desk.loop
        broker = loop.registry.get(incarnation)
        return broker is not None and broker.liveness(loop.now()) is Liveness.ALIVE


class _Fleet(FleetKeeper):
    """The bounds of the number of brokers are on their Deployments, and may change at any time."""

    def __init__(self, desk: Desk, world: KubeWorld) -> None:
        super().__init__(desk.loop, FleetPolicy(1, 1))
        self._world = world

    def look(self) -> None:
        policy = self._world.policy()
        if policy is not None:
            self._policy = policy
            super().look()
