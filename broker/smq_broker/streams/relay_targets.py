"""The targets that the relay may connect to: this cluster's leader, its brokers and its filer, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping

import grpc
import pyarrow as pa
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError

from smq_broker.access.dialer import BrokerDialer
from smq_broker.leader_client.leader_channels import LeaderChannels
from smq_core.errors import InvalidRequest, SmqError, Unauthenticated, Unavailable
from smq_core.model.names import MAX_SHOWN_CHARACTERS, bounded
from smq_proto.channel_options import NO_PROXY
from smq_proto.flight import call
from smq_proto.pages import all_pages
from smq_proto.v1 import admin_pb2
from smq_proto.v1 import data_pb2 as pb
from smq_proto.v1.admin_pb2_grpc import AdminStub
from smq_storage.process.locks import make_lock

# The host name that clients use for the current leader; the port does not matter.
LEADER_HOST = "leader"

REFRESH_SECONDS = 1.0
REFRESH_TIMEOUT_SECONDS = 1.0
CACHE_TTL_SECONDS = 600.0
# Nothing listens at the address of such a broker.
ENDED_STATES = (admin_pb2.BrokerList.Broker.ENDED, admin_pb2.BrokerList.Broker.GONE)


class RelayTargets:
    """Safe from many threads. ``leaders`` returns the known addresses of leaders, the current one first.

    ``static_targets`` are always allowed, such as the filer. The leader lists the brokers. The list is cached for ten
    minutes, so that clients reach brokers without a leader too. ``read_incarnation`` is called with an address and
    an incarnation that is listed there, and returns which one answers.
    """

    def __init__(
        self,
        leaders: Callable[[], list[str]],
        *,
        static_targets: Iterable[str],
        list_brokers: Callable[[str], Mapping[str, Collection[str]]],
        read_incarnation: Callable[[str, str], str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._leaders = leaders
        self._static_targets = frozenset(static_targets)
        self._list_brokers = list_brokers
        self._read_incarnation = read_incarnation
        self._clock = clock
        self._lock = make_lock()
        self._last_listed: dict[str, tuple[Collection[str], float]] = {}
        """By address: the incarnations, and when the leader listed them last.

        A new process may have the address of one whose end is not proved yet.
        """
        self._verified: dict[str, str] = {}
        """By address: the incarnation that answered there."""
        self._refreshed_at = -REFRESH_SECONDS

    def resolve(self, target: str) -> str:
        """The ``host:port`` to connect to. Raises InvalidRequest for a foreign target, Unavailable without a leader."""
        leaders = self._leaders()
        if target.rpartition(":")[0] == LEADER_HOST:
            if not leaders:
                raise Unavailable("this broker was given no leader (--leader), so it cannot relay to one")
            return leaders[0]
        if target in self._static_targets or target in leaders or self._is_broker(target, leaders):
            return target
        named = bounded(target, MAX_SHOWN_CHARACTERS)  # by a stranger, and the log has it
        raise InvalidRequest(f"{named} is no broker, leader or filer of this cluster: the relay connects to no other")

    def _is_broker(self, target: str, leaders: list[str]) -> bool:
        with self._lock:
            now = self._clock()
            if now - self._refreshed_at >= REFRESH_SECONDS and leaders:
                self._refreshed_at = now
                listed = self._list_brokers(leaders[0])
                self._last_listed |= {address: (incarnations, now) for address, incarnations in listed.items()}
            incarnations, listed_at = self._last_listed.get(target, ((), -CACHE_TTL_SECONDS))
            if now - listed_at >= CACHE_TTL_SECONDS:
                return False
            if self._verified.get(target) in incarnations:
                return True
        # Whoever reports to the leader chooses an address. Only a broker answers there with the incarnation.
        for listed_there in incarnations:
            incarnation = self._read_incarnation(target, listed_there)
            if incarnation and incarnation in incarnations:
                with self._lock:
                    self._verified[target] = incarnation
                return True
        return False


def read_incarnation_at(dialer: BrokerDialer, address: str, expected: str) -> str:
    """The incarnation of the broker at that address; empty if none answers.

    With security only the expected one can answer.
    """
    try:
        with dialer.connect(address, expected, [NO_PROXY]) as client:
            status = call(client, "status", Empty(), timeout=REFRESH_TIMEOUT_SECONDS)
        return pb.BrokerStatus.FromString(status).incarnation
    except (SmqError, DecodeError, pa.ArrowException, OSError):
        return ""


def list_brokers_by_address(channels: LeaderChannels, leader: str) -> dict[str, set[str]]:
    """The incarnations of all brokers that the leader lists, by address; none if it does not answer."""
    request = admin_pb2.ListBrokersRequest()
    try:
        with channels.connect(leader) as channel:
            pages = list(all_pages(AdminStub(channel).ListBrokers, request, timeout=REFRESH_TIMEOUT_SECONDS))
    except (grpc.RpcError, Unauthenticated):
        return {}
    found: dict[str, set[str]] = {}
    for broker in (it for page in pages for it in page.brokers):
        if broker.state not in ENDED_STATES:
            found.setdefault(broker.address, set()).add(broker.incarnation)
    return found
