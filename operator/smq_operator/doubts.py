"""Complaints about brokers are checked by asking the broker itself; a complaint alone is only a hint."""

from __future__ import annotations

import asyncio

import structlog

from smq_core.errors import SmqError
from smq_operator.effects import BrokerCalls
from smq_operator.loop import LeaderLoop
from smq_operator.registry import SILENT_AFTER, Broker
from smq_proto.v1 import data_pb2 as pb
from smq_proto.v1.leader_pb2 import Empty

log = structlog.get_logger()

ANSWER_WITHIN = 0.3
"""Seconds; more for a broker that was suspected in vain before."""
ASK_AGAIN_AFTER = 0.5


class Doubts:
    """One check at a time for each incarnation; a broker that failed one is asked again until it answers."""

    def __init__(self, loop: LeaderLoop, brokers: BrokerCalls) -> None:
        self._loop = loop
        self._brokers = brokers
        self._asking: set[str] = set()

    def complain(self, incarnation: str, by: str) -> None:
        """Somebody could not hear this incarnation."""
        broker = self._loop.registry.get(incarnation)
        if broker is None or broker.gone is not None or incarnation in self._asking:
            return
        self._asking.add(incarnation)
        self._loop.spawn(self._check(broker, by))

    async def answers(self, broker: Broker) -> bool:
        """True when the process at the broker's address answers and is this incarnation."""
        patience = ANSWER_WITHIN * broker.patience / SILENT_AFTER
        try:
            body = await self._brokers.call(broker.replica, "status", Empty(), timeout=patience, urgent=True)
            return pb.BrokerStatus.FromString(body).incarnation == broker.replica.incarnation
        except SmqError:
            return False

    async def _check(self, broker: Broker, by: str) -> None:
        incarnation = broker.replica.incarnation
        try:
            while broker.gone is None:
                if await self.answers(broker):
                    if broker.doubted:
                        log.info("broker.answers.again", broker=broker.replica.broker, incarnation=incarnation)
                        broker.lives(self._loop.now())
                    broker.doubted = False
                    return
                if not broker.doubted:
                    log.warning("broker.silent", broker=broker.replica.broker, incarnation=incarnation, noticed_by=by)
                broker.doubted = True
                self._loop.kick()
                await asyncio.sleep(ASK_AGAIN_AFTER)
        finally:
            self._asking.discard(incarnation)
