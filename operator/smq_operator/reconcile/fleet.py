"""Lets the number of brokers follow the load: runs core's FleetScaler once a second."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from smq_core.model.decision import Decision, DecisionAction
from smq_core.scaling.broker_fleet import FleetLoad, FleetPolicy, FleetScaler, choose_broker_to_drain
from smq_core.scaling.rebalancing import FOLLOWER_WEIGHT
from smq_core.scaling.segment_load import TrafficRates
from smq_operator.brokers.registry import BrokerRegistry
from smq_operator.platform_port import Platform
from smq_operator.reconcile.broker_assignments import BrokerAssignments
from smq_operator.reconcile.decision_log import DecisionLog
from smq_operator.reconcile.topics.directory import TopicDirectory
from smq_operator.runtime.clock import Clock

INTERVAL_SECONDS = 1.0


class FleetReconciler:
    """Adds brokers at once and removes them slowly. While a broker starts or drains it changes nothing.

    ``policy`` returns the bounds of the number of brokers, which may change at any time; None: it is left as it is.
    """

    def __init__(
        self,
        *,
        platform: Platform,
        registry: BrokerRegistry,
        topics: TopicDirectory,
        assignments: BrokerAssignments,
        decisions: DecisionLog,
        clock: Clock,
        policy: Callable[[], FleetPolicy | None],
    ) -> None:
        self._platform = platform
        self._registry = registry
        self._topics = topics
        self._assignments = assignments
        self._decisions = decisions
        self._now = clock
        self._policy = policy
        self._fleet = FleetScaler()

    async def run(self) -> None:
        """Runs until it is cancelled."""
        while True:
            await asyncio.sleep(INTERVAL_SECONDS)
            self.reconcile()

    def reconcile(self) -> None:
        """Compares once."""
        policy, now = self._policy(), self._now()
        if policy is None:
            return
        have = self._platform.desired_brokers()
        living = self._registry.alive(now)
        if len(living) != have or any(b.draining for b in living):
            return
        replicas = max(
            (managed.reconciler.topic.spec.replicas for managed in self._topics.values() if managed.reconciler),
            default=1,
        )
        target = self._fleet.desired_brokers(policy, have, self._load(), replicas, now)
        # Until every topic is known the load may be higher than it looks, so no broker is removed before that.
        if target.brokers == have or (target.brokers < have and not self._topics.all_layouts_known):
            return
        going = None
        if target.brokers < have:
            least = choose_broker_to_drain(list(self._assignments.views().values()))
            going = least.replica.broker if least is not None else None
        action = DecisionAction.SCALE_OUT if target.brokers > have else DecisionAction.SCALE_IN
        words = f"{have} to {target.brokers} brokers: {target.because}" + (f"; draining {going}" if going else "")
        self._decisions.record_of_brokers(Decision(at=now, topic="", action=action, segments=(), reason=words))
        self._platform.scale_brokers(target.brokers, going)

    def _load(self) -> FleetLoad:
        """What all brokers carry, including the replication work of followers."""
        total = TrafficRates()
        for managed in self._topics.values():
            if managed.reconciler is None or managed.layout is None:
                continue
            for segment in managed.layout.segments:
                load = managed.reconciler.load.segments.get(segment.name)
                if load is not None and not segment.successors:
                    total = total.plus(load.fast, 1 + FOLLOWER_WEIGHT * (len(segment.replicas) - 1))
        statuses = [broker.status for broker in self._registry.alive(self._now())]
        fullest = max((s.tail_bytes / s.memory_limit for s in statuses if s.memory_limit), default=0.0)
        return FleetLoad(total.bytes, total.batches, fullest)
