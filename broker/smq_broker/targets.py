"""What the relay may connect to: this cluster's leader, its brokers and its filer, and nothing else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

import grpc

from smq_core.errors import InvalidRequest, Unavailable
from smq_proto.v1 import leader_pb2 as leader_pb
from smq_proto.v1.leader_pb2_grpc import LeaderStub

LEADER = "leader"
"""The host name under which clients ask for whoever leads; the port does not matter."""

ASK_EVERY = 1.0
ANSWER_WITHIN = 1.0
KEPT = 600.0


class Targets:
    """Safe from many threads. ``leaders`` gives the known addresses of leaders, the one that answered last first.

    ``always`` are addresses that need no asking, such as the filer's. Brokers are asked of the leader and remembered
    for ten minutes: so they are reached while no leader is there.
    """

    def __init__(
        self,
        leaders: Callable[[], list[str]],
        always: Iterable[str],
        ask: Callable[[str], set[str]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._leaders = leaders
        self._always = frozenset(always)
        self._ask = ask or ask_brokers
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: dict[str, float] = {}
        self._asked_at = -ASK_EVERY

    def resolve(self, target: str) -> str:
        """The ``host:port`` to connect to. Raises InvalidRequest for a foreign one, Unavailable without a leader."""
        leaders = self._leaders()
        if target.rpartition(":")[0] == LEADER:
            if not leaders:
                raise Unavailable("this broker was given no leader (--leader), so it cannot relay to one")
            return leaders[0]
        if target in self._always or target in leaders or self._is_broker(target, leaders):
            return target
        raise InvalidRequest(f"{target} is no broker, leader or filer of this cluster: the relay connects to no other")

    def _is_broker(self, target: str, leaders: list[str]) -> bool:
        with self._lock:
            now = self._clock()
            if now - self._asked_at >= ASK_EVERY and leaders:
                self._asked_at = now
                self._seen |= dict.fromkeys(self._ask(leaders[0]), now)
            return now - self._seen.get(target, -KEPT) < KEPT


def ask_brokers(leader: str) -> set[str]:
    """The addresses of all brokers that the leader knows; none when it does not answer."""
    try:
        with grpc.insecure_channel(leader) as channel:
            brokers = LeaderStub(channel).ListBrokers(leader_pb.Empty(), timeout=ANSWER_WITHIN).brokers
    except grpc.RpcError:
        return set()
    return {broker.address for broker in brokers}
