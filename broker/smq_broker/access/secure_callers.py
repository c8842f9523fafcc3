"""Callers of a secure broker, by their certificates and the grants that they have presented."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from smq_broker.access.callers import UNLIMITED_STREAM, Caller, StreamQuota
from smq_broker.access.credentials import BrokerCredentials
from smq_broker.access.denials import Denials
from smq_broker.access.presented_grants import PresentedGrants
from smq_core.access.broker_calls import grant_missing, identity_denial, role_denial, rule_of
from smq_core.access.peers import Peer, Role, parse_peer
from smq_core.access.producer_ids import ANYBODY, Claimant, is_own, require_own
from smq_core.access.rights import Right
from smq_core.errors import PermissionDenied, SmqError, Unauthenticated
from smq_core.model.names import bounded
from smq_proto.v1 import data_pb2 as pb

# How often a stream's certificate and grant are checked again. A stream looks at the time once a second at least.
RECHECK_SECONDS = 5.0
# Of a topic's name as a caller gives it, in what it is refused with.
MAX_NAME_CHARACTERS = 200


class SecureAccess:
    """Safe from many threads. ``clock`` is in seconds since the Unix epoch.

    ``leader_seen_at`` is when a leader last answered this broker, by the same clock. ``topic_name`` is the name of the
    topic with a uid, or empty. ``count_grace`` is that of ``GrantBook``, ``count_throttled`` that of
    ``PresentedGrants``.
    """

    def __init__(
        self,
        credentials: BrokerCredentials,
        *,
        denials: Denials,
        count_grace: Callable[[], object],
        count_throttled: Callable[[str, Right, float], object],
        leader_seen_at: Callable[[], float],
        topic_name: Callable[[str], str],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.release = credentials.current.release
        self.denials = denials
        self.leader_seen_at = leader_seen_at
        self.topic_name = topic_name
        self.clock = clock
        self.grants = PresentedGrants(credentials, count_grace, count_throttled)

    def caller(self, context: Any) -> Caller:
        """Raises Unauthenticated."""
        try:
            peer = parse_peer(_name_in_certificate(context))
        except Unauthenticated as error:
            raise self.denials.record("a stranger", "", error) from None
        made = SecureCaller(self, peer)
        made.check_identity()
        return made


class SecureCaller:
    """See ``Caller``. It belongs to one call or stream."""

    def __init__(self, access: SecureAccess, peer: Peer) -> None:
        self.peer = peer
        self.check_at = time.monotonic() + RECHECK_SECONDS
        self._access = access
        self._call = ""
        self._topic: tuple[str, str] | None = None
        """The uid and the name of the topic on which a right was required."""
        self._foreign_producer: tuple[str, str] | None = None
        """The uid of a topic, and the id of a producer which another identity made, and as which this caller writes."""

    def check_identity(self) -> None:
        self._refuse(identity_denial(self.peer, self._access.release, self._access.clock()))

    def admit(self, call: str) -> None:
        self._call = call
        self._refuse(role_denial(self.peer, call))

    def require(self, uid: str, topic: str = "") -> None:
        if self.peer.role is Role.CLIENT:
            self._topic = uid, topic
            if not self._holds(uid, rule_of(self._call).rights):
                self._refuse(grant_missing(self.peer, self._call, self._name(uid, topic)))

    def open_stream(self, uid: str) -> StreamQuota:
        if self.peer.role is not Role.CLIENT:
            return UNLIMITED_STREAM
        (right,) = rule_of(self._call).rights
        return self._access.grants.open_stream(self.peer.name, uid, right)

    def require_producer(self, uid: str, producer_id: str) -> None:
        if self.peer.role is Role.CLIENT and not is_own(producer_id, self.peer.name):
            with self.recorded():
                require_own(self.claimant(uid), producer_id)
            self._foreign_producer = uid, producer_id

    def require_incarnation(self, incarnation: str) -> None:
        if self.peer.name != incarnation:
            error = PermissionDenied(
                f"{self.peer} may not replicate as {incarnation}", identity=self.peer.name, access=self._call
            )
            self._refuse(error)

    def claimant(self, uid: str, topic: str = "") -> Claimant:
        if self.peer.role is not Role.CLIENT:
            return ANYBODY
        return Claimant(self.peer.name, self._name(uid, topic), self._holds(uid, [Right.ADMINISTER]))

    @contextmanager
    def recorded(self) -> Iterator[None]:
        try:
            yield
        except PermissionDenied as error:
            self._refuse(error)

    def recheck(self) -> None:
        self.check_identity()
        if self._topic is not None:
            self.require(*self._topic)
        if self._foreign_producer is not None:
            self.require_producer(*self._foreign_producer)
        self.check_at = time.monotonic() + RECHECK_SECONDS

    def visible(self, status: pb.BrokerStatus) -> pb.BrokerStatus:
        if self.peer.role is not Role.CLIENT:
            return status
        # What is wrong with files names topics of others.
        return pb.BrokerStatus(
            broker=status.broker,
            incarnation=status.incarnation,
            draining=status.draining,
            segments=[it for it in status.segments if self._holds(it.uid, rule_of(self._call).rights)],
        )

    def present(self, request: pb.PresentGrants) -> None:
        with self.recorded():
            self._access.grants.add(self.peer.name, request.grants, self._access.clock())

    def _holds(self, uid: str, rights: Iterable[Right]) -> bool:
        access = self._access
        return access.grants.allow(self.peer.name, uid, rights, access.clock(), access.leader_seen_at())

    def _name(self, uid: str, topic: str) -> str:
        """Of a topic, which a caller may have given, as it stands in errors."""
        return bounded(topic, MAX_NAME_CHARACTERS) or self._access.topic_name(uid)

    def _refuse(self, error: SmqError | None) -> None:
        if error is not None:
            raise self._access.denials.record(str(self.peer), self._call, error)


def _name_in_certificate(context: Any) -> str:
    """The first subject alternative name of the peer's certificate."""
    name = context.peer_identity()
    return name.decode(errors="replace") if isinstance(name, bytes) else str(name)
