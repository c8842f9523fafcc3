"""The calls of the operator's own code to simulated brokers."""

from __future__ import annotations

from typing import Any

from smq_core.model.entities import Replica
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import outcome_to_pb, segment_from_pb
from support.sim.engine.world import SECOND


class SimulatedCalls:
    """``leader`` provides a process, the network, and the virtual event loop."""

    def __init__(self, leader: Any) -> None:
        self.leader = leader

    async def call(self, replica: Replica, action: str, request: Any, *, timeout: float, **haste: bool) -> bytes:
        match request:
            case pb.OpenSegment():
                await self._call(replica, timeout, "open", segment_from_pb(request.segment), replica.incarnation)
                return pb.OpenedSegment().SerializeToString()
            case pb.SealSegment(only_flush=True):
                await self._call(replica, timeout, "flush", request.segment, replica.incarnation)
                return b""
            case pb.SealSegment():
                outcome = await self._call(replica, timeout, "seal", request.segment, replica.incarnation)
                return outcome_to_pb(outcome).SerializeToString()
        status: pb.BrokerStatus = await self._call(replica, timeout, "status", replica.incarnation)
        return status.SerializeToString()

    async def _call(self, replica: Replica, timeout: float, method: str, *args: Any) -> Any:
        leader = self.leader
        call = leader.network.call(leader.process, replica.address, method, *args, timeout=int(timeout * SECOND))
        return await leader.loop.answer_of(call)

    def forget(self, incarnation: str) -> None:
        """Does nothing, because no connection is kept."""
