"""The number of brokers follows the load: the loop around core's Fleet, once a second."""

from __future__ import annotations

import asyncio

import structlog

from smq_core.decide import Decision
from smq_core.fleet import Fleet, FleetLoad, FleetPolicy, to_drain
from smq_core.load import Rates
from smq_core.rebalance import FOLLOWER
from smq_operator.loop import LeaderLoop

log = structlog.get_logger()

EVERY = 1.0


class FleetKeeper:
    """Asks for more brokers at once, and for fewer slowly; nothing is changed while a broker starts or drains."""

    def __init__(self, loop: LeaderLoop, policy: FleetPolicy) -> None:
        self._loop = loop
        self._policy = policy
        self._fleet = Fleet()

    async def keep(self) -> None:
        """Runs until it is cancelled."""
        while True:
            await asyncio.sleep(EVERY)
            try:
                self.look()
            except Exception:
                log.exception("fleet.failed")

    def look(self) -> None:
        """Compares once."""
        loop, now = self._loop, self._loop.now()
        have = loop.world.brokers_wanted()
        living = loop.registry.living(now)
        if len(living) != have or any(b.draining for b in living):
            return
        replicas = max((run.leader.topic.spec.replicas for run in loop.topics.values() if run.leader), default=1)
        wanted = self._fleet.wanted(self._policy, have, self._load(), replicas, now)
        # Before every topic is known there may be more load than is seen: a broker goes later then.
        if wanted.brokers == have or (wanted.brokers < have and not loop.knows_everything):
            return
        going = None
        if wanted.brokers < have:
            least = to_drain(list(loop.views().values()))
            going = least.replica.broker if least is not None else None
        action = "scale out" if wanted.brokers > have else "scale in"
        words = f"{have} to {wanted.brokers} brokers: {wanted.because}" + (f"; {going} goes" if going else "")
        loop.decisions.append(Decision(now, "", action, (), words))
        log.info("decision", action=action, reason=words)
        loop.world.want_brokers(wanted.brokers, going)

    def _load(self) -> FleetLoad:
        """What all brokers carry; a follower's part counts as the work that it is."""
        total = Rates()
        for run in self._loop.topics.values():
            if run.leader is None or run.layout is None:
                continue
            for segment in run.layout.segments:
                load = run.leader.load.segments.get(segment.name)
                if load is not None and not segment.successors:
                    total = total.plus(load.fast, 1 + FOLLOWER * (len(segment.replicas) - 1))
        statuses = [broker.status for broker in self._loop.registry.living(self._loop.now())]
        fullest = max((s.tail_bytes / s.memory_limit for s in statuses if s.memory_limit), default=0.0)
        return FleetLoad(total.bytes, total.batches, fullest)
