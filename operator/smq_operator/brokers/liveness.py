"""Probes brokers that others report as unresponsive. Such a report alone is only a hint; the probe decides."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog
from google.protobuf.empty_pb2 import Empty

from smq_core.errors import SmqError
from smq_operator.brokers.calls import BrokerCalls
from smq_operator.brokers.registry import SUSPECT_AFTER_US, Broker, BrokerRegistry
from smq_operator.runtime.clock import Clock
from smq_operator.runtime.task_runner import TaskRunner
from smq_proto.v1 import data_pb2 as pb

log = structlog.get_logger(__name__)

# Longer for a broker that was suspected wrongly before.
PROBE_TIMEOUT_SECONDS = 0.3
PROBE_INTERVAL_SECONDS = 0.5


class LivenessProbes:
    """Runs one probe at a time for each incarnation, and repeats a failed one until the broker answers.

    ``on_suspected`` is called when a broker becomes, or still is, suspected.
    """

    def __init__(
        self,
        *,
        registry: BrokerRegistry,
        brokers: BrokerCalls,
        tasks: TaskRunner,
        on_suspected: Callable[[], None],
        clock: Clock,
    ) -> None:
        self._registry = registry
        self._brokers = brokers
        self._tasks = tasks
        self._on_suspected = on_suspected
        self._now = clock
        self._probing: set[str] = set()
        self._pauses = 0

    def compensate_pause(self, microseconds: int) -> None:
        """This process was paused, so a probe that ran meanwhile timed out whether the broker answered or not."""
        self._pauses += 1

    def report_unresponsive(self, incarnation: str, by: str) -> None:
        """Starts to probe this incarnation, to which ``by`` has no connection."""
        broker = self._registry.get(incarnation)
        if broker is None or broker.terminated is not None or incarnation in self._probing:
            return
        self._tasks.spawn(self._check(broker, by))
        self._probing.add(incarnation)

    async def probe(self, broker: Broker) -> bool:
        """True when the process at the broker's address answers and is this incarnation."""
        timeout_seconds = PROBE_TIMEOUT_SECONDS * broker.report_timeout_us / SUSPECT_AFTER_US
        try:
            body = await self._brokers.call(broker.replica, "status", Empty(), timeout=timeout_seconds, urgent=True)
            return pb.BrokerStatus.FromString(body).incarnation == broker.replica.incarnation
        except SmqError:
            return False

    async def _check(self, broker: Broker, by: str) -> None:
        incarnation = broker.replica.incarnation
        try:
            while broker.terminated is None:
                pauses = self._pauses
                answered = await self.probe(broker)
                self._now()  # notices a pause during the probe
                if not answered and self._pauses != pauses:
                    continue
                if answered:
                    if broker.suspected:
                        log.info("broker.recovered", broker=broker.replica.broker, incarnation=incarnation)
                        broker.mark_alive(self._now())
                    broker.suspected = False
                    return
                if not broker.suspected:
                    log.warning(
                        "broker.unresponsive", broker=broker.replica.broker, incarnation=incarnation, noticed_by=by
                    )
                broker.suspected = True
                self._on_suspected()
                await asyncio.sleep(PROBE_INTERVAL_SECONDS)
        finally:
            self._probing.discard(incarnation)
