"""The broker's login at its leaders, repeated until one gives it a certificate."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import grpc
import structlog

from smq_broker.access.credentials import Login
from smq_broker.leader_client.first_answer import first_answer
from smq_broker.leader_client.leader_channels import LeaderChannels
from smq_core.errors import PermissionDenied, SmqError, Unauthenticated, Unavailable
from smq_proto.connection_failures import cause_of
from smq_proto.logins import certificate_from_pb
from smq_proto.signed_grants import GrantVerifier
from smq_proto.v1 import auth_pb2 as pb
from smq_proto.v1.auth_pb2_grpc import AuthStub

LOGIN_TIMEOUT_SECONDS = 5.0
# Between two tries, doubled each time: while no leader answers, and after a leader has refused this broker. Someone has
# to change something before it does not refuse.
RETRY_SECONDS, MAX_RETRY_SECONDS = 0.2, 2.0
REFUSED_RETRY_SECONDS, MAX_REFUSED_RETRY_SECONDS = 1.0, 30.0

log = structlog.get_logger(__name__)


class LeaderLogin:
    """``leaders`` are the known addresses of leaders. ``clock`` is in seconds since the Unix epoch.

    ``hosts`` are the names and IP addresses by which clients verify this broker, if it has a listener for them.
    """

    def __init__(
        self,
        incarnation: str,
        *,
        leaders: Callable[[], Sequence[str]],
        channels: LeaderChannels,
        clock: Callable[[], float] = time.time,
        hosts: Sequence[str] = (),
    ) -> None:
        self._incarnation = incarnation
        self._leaders = leaders
        self._channels = channels
        self._clock = clock
        self._hosts = hosts

    def until_given(self, wait: Callable[[float], bool], on_failure: Callable[[str, float], None]) -> Login | None:
        """Tries again and again. None once ``wait``, of some seconds, returns True.

        ``on_failure`` gets the reason each time, and after how many seconds it is tried again.
        """
        pause, refused_pause = RETRY_SECONDS, REFUSED_RETRY_SECONDS
        while True:
            try:
                return self.once()
            except (Unauthenticated, PermissionDenied) as error:
                reason, seconds = f"the leader refuses this broker: {error.message}", refused_pause
                refused_pause = min(refused_pause * 2, MAX_REFUSED_RETRY_SECONDS)
            except SmqError as error:
                reason, seconds = f"no leader has given this broker a certificate: {error.message}", pause
                pause = min(pause * 2, MAX_RETRY_SECONDS)
            on_failure(reason, seconds)
            if wait(seconds):
                return None

    def once_or_later(self) -> Login | None:
        """Tries once. None if no leader gives a certificate now."""
        try:
            return self.once()
        except SmqError as error:
            log.warning("login.failed", error=error.message)
            return None

    def next(self) -> Login:
        """Blocks until a leader has given a certificate."""
        login = self.until_given(
            threading.Event().wait, lambda reason, seconds: log.warning("login.failed", error=reason, retry_in=seconds)
        )
        assert login is not None
        return login

    def once(self) -> Login:
        """Tries each leader once. Raises Unauthenticated, PermissionDenied (one refuses this broker), Unavailable."""
        return first_answer(self._leaders(), self._login_at)

    def _login_at(self, leader: str) -> Login:
        request = pb.LoginRequest(incarnation=self._incarnation, hosts=self._hosts)
        try:
            with self._channels.connect(leader) as channel:
                reply = AuthStub(channel).Login(request, timeout=LOGIN_TIMEOUT_SECONDS)
        except grpc.RpcError as error:
            cause = cause_of(str(error.details() if isinstance(error, grpc.Call) else error))
            raise self._channels.failure_of(error, leader) or Unavailable(
                f"{leader} does not answer: {cause}"
            ) from None
        certificate = certificate_from_pb(reply)
        try:
            verifier = GrantVerifier(reply.grant_keys)
        except ValueError as error:
            raise Unavailable(f"{leader} answered with keys that are none: {error}") from None
        if not reply.release or not certificate.chain or certificate.expires_at <= self._clock():
            raise Unavailable(f"{leader} answered with a certificate that is none, or that has expired already")
        return Login(reply.release, certificate, verifier, reply.authorities)
