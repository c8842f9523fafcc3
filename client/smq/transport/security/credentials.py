"""A client's credentials in a secure release: its certificate, and its grants of topics, both from the leader.

A thread renews them after half of their life, as long as the client uses them: so an outage of the leader for minutes
does no harm. Certificates and grants are frozen and replaced as a whole, so they are read without a lock.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeGuard

from smq.lock_order import ClientLock
from smq.transport.security.security_files import SecurityFiles
from smq.transport.security.topic_grants import TopicGrants
from smq_core.access.broker_calls import rule_of
from smq_core.access.certificates import Certificate
from smq_core.access.rights import Right, topic_right
from smq_core.errors import (
    GrantMissing,
    PermissionDenied,
    SmqError,
    Unauthenticated,
    Unavailable,
    Unreachable,
)
from smq_core.model.entities import Replica
from smq_proto.logins import certificate_from_pb
from smq_proto.v1 import auth_pb2
from smq_storage.process.locks import make_lock

if TYPE_CHECKING:
    import pyarrow.flight as fl
    from google.protobuf.message import Message

    from smq_proto.v1.auth_pb2_grpc import AuthStub

log = logging.getLogger(__name__)

# For a broker's answer to the grants that are presented.
PRESENT_TIMEOUT_SECONDS = 3.0
# After a renewal that failed. What was fetched before is good for minutes more.
RETRY_AFTER_SECONDS = 5.0
# The part of a certificate's life after which it is renewed: then it is good for four minutes more. Each login has the
# token reviewed, and hundreds of clients may be idle.
RENEWED_AFTER = 0.7
# Certificates and grants are not used for anything new in this last part of their life.
LAST_PART = 0.02
# How long the thread waits when there is nothing to renew.
IDLE_SECONDS = 3600.0
# The shortest time between two renewals, so that a clock that is far ahead does not make a client call without end.
MIN_RENEWAL_SECONDS = 0.3


@dataclass(slots=True)
class _Connection:
    """One to a broker, which was opened with ``certificate`` and is used for ``topics``."""

    replica: Replica
    certificate: Certificate
    topics: set[str] = field(default_factory=set)


class Credentials:
    """Safe from many threads. ``attach`` it to the leader's service before its first use.

    ``files`` are what the program gave. ``now`` is in seconds since the Unix epoch.
    """

    def __init__(self, files: SecurityFiles, now: Callable[[], float] = time.time) -> None:
        self.files = files
        self._now = now
        self._auth: AuthStub | None = None
        # Held during a call to the leader, so that threads which need the same wait for one call.
        self._renewing = make_lock(ClientLock.RENEWING)
        self._identity = ""
        """That of the last certificate."""
        self._certificate: Certificate | None = None
        self._replacement: Certificate | None = None
        """The certificate that was fetched because a broker refused one that seemed to be good."""
        self._grants: dict[str, TopicGrants] = {}
        """By topic."""
        # Guards the fields below.
        self._lock = make_lock()
        self._connections: weakref.WeakKeyDictionary[fl.FlightClient, _Connection] = weakref.WeakKeyDictionary()
        """Those that are in use: nobody has another one after its end."""
        self._presented: dict[tuple[str, str], TopicGrants] = {}
        """By incarnation and topic: the last grants that this broker took."""
        self._refused: set[tuple[str, str]] = set()
        """Where fresh grants were not enough, since they were last renewed."""
        self._used = False
        """Whether anything was asked for since the last renewal."""
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()
        self._closed = False
        self._failing: set[str] = set()
        """What the last renewal could not renew. Of the thread."""

    def __repr__(self) -> str:
        return f"<Credentials of {self.files!r}>"

    def attach(self, auth: AuthStub) -> None:
        """Sets the service that gives certificates and grants."""
        self._auth = auth

    def close(self) -> None:
        """Ends the renewals. Repeatable."""
        with self._lock:
            self._closed = True
            thread = self._thread
        self._wake.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(5)

    # ---- certificates

    def certificate(self) -> Certificate:
        """The certificate for a new connection to a broker. Logs in if there is none, or if it has ended.

        Raises Unauthenticated, PermissionDenied, Unavailable.
        """
        self._used = True
        found = self._certificate
        if found is not None and self._is_good(found):
            return found
        with self._renewing:
            found = self._certificate
            if found is None or not self._is_good(found):
                found = self._log_in()
        return found

    def identity(self) -> str:
        """Who this client is, as the leader knows it. Raises as ``certificate``."""
        self.certificate()
        return self._identity

    def _is_good(self, certificate: Certificate) -> bool:
        life = certificate.expires_at - certificate.issued_at
        return self._now() < certificate.expires_at - LAST_PART * life

    def _are_good(self, grants: TopicGrants | None) -> TypeGuard[TopicGrants]:
        if grants is None:
            return False
        life = grants.expires_at - grants.fetched_at
        return self._now() < grants.expires_at - LAST_PART * life

    def _log_in(self) -> Certificate:
        """The caller holds ``_renewing``."""
        reply: auth_pb2.LoginReply = self._service().Login(auth_pb2.LoginRequest())
        now, given = self._now(), certificate_from_pb(reply)
        # By this clock, which may differ from the leader's.
        life = max(0.0, given.expires_at - given.issued_at)
        self._identity = reply.identity
        found = self._certificate = replace(given, issued_at=now, expires_at=now + life)
        log.debug("logged in as %s", reply.identity)
        self._start_renewing()
        return found

    def _service(self) -> AuthStub:
        if self._auth is None:
            raise Unauthenticated("no leader is given, which would sign this client's certificate: pass its address")
        return self._auth

    # ---- connections

    def opened(self, client: fl.FlightClient, replica: Replica, certificate: Certificate) -> None:
        """Remembers a connection until nobody has it any more."""
        with self._lock:
            self._connections[client] = _Connection(replica, certificate)
            starts = self._thread is None
        if starts:
            self._start_renewing()

    def is_outdated(self, client: fl.FlightClient) -> bool:
        """Whether there is a newer certificate than that of this connection, which ends with it."""
        with self._lock:
            connection = self._connections.get(client)
        return connection is not None and connection.certificate is not self._certificate

    def call(self, client: fl.FlightClient, topic: str, action: str, request: Message, *, timeout: float) -> bytes:
        """Runs an action that needs a right to the topic, as ``smq_proto.flight.call``. Presents the grants before.

        Raises also PermissionDenied, Unauthenticated, and Unreachable if another connection has to be opened.
        """
        from smq_proto.flight import call

        self.present(client, topic)
        try:
            return call(client, action, request, timeout=timeout)
        except (GrantMissing, Unauthenticated) as error:
            failure = self.recover(error, client, topic, rule_of(action).rights)
            if failure is not None:
                raise failure from error
            if isinstance(error, Unauthenticated):
                raise Unreachable("the certificate of the connection has ended: connect again") from error
        self.present(client, topic)
        return call(client, action, request, timeout=timeout)

    # ---- grants

    def require(self, topic: str, right: Right) -> None:
        """Raises PermissionDenied if the leader does not give this right to the topic; Unauthenticated, Unavailable."""
        try:
            rights = self._granted(topic).rights
        except PermissionDenied:  # it has no right at all, and the leader names one of them
            rights = frozenset()
        if right not in rights and (denial := self._denial(topic, right)) is not None:
            raise denial

    def present(self, client: fl.FlightClient, topic: str) -> None:
        """Lets the broker of this connection know what the client may do with the topic, unless it knows already.

        Raises as ``require``, and the broker's error.
        """
        self._used = True
        with self._lock:
            connection = self._connections.get(client)
            if connection is not None:
                connection.topics.add(topic)
        if connection is not None:
            self._present(client, topic, self._granted(topic))

    def recover(
        self, error: SmqError, client: fl.FlightClient, topic: str, rights: Sequence[Right] = ()
    ) -> SmqError | None:
        """What is to be done after a broker has refused a stream or action of this connection.

        ``rights``: any of these is enough for it. Without them the error says what is missing.

        None: the reason is gone, so the same succeeds on another connection. Otherwise the error by which it ends;
        PermissionDenied and Unauthenticated are final. Other errors than a missing grant and an unknown caller are
        returned as they are.
        """
        with self._lock:
            connection = self._connections.get(client)
        if connection is None or not isinstance(error, (GrantMissing, Unauthenticated)):
            return error
        try:
            if isinstance(error, GrantMissing):
                enough = set(rights) or {it for it in Right if it.value == error.right}
                return self._recover_grant(error, (connection.replica.incarnation, topic), enough)
            return self._recover_certificate(error, connection.certificate)
        except SmqError as failure:
            return failure

    def _granted(self, topic: str) -> TopicGrants:
        found = self._grants.get(topic)
        if self._are_good(found):
            return found
        with self._renewing:
            found = self._grants.get(topic)
            return found if self._are_good(found) else self._request_grants(topic)

    def _fetch(self, topic: str) -> TopicGrants:
        with self._renewing:
            return self._request_grants(topic)

    def _request_grants(self, topic: str) -> TopicGrants:
        """The caller holds ``_renewing``."""
        reply: auth_pb2.GetGrantsReply = self._service().GetGrants(auth_pb2.GetGrantsRequest(topic=topic))
        found = self._grants[topic] = TopicGrants.of(reply, self._now())
        self._start_renewing()
        return found

    def _present(self, client: fl.FlightClient, topic: str, grants: TopicGrants) -> None:
        from smq_proto.flight import call

        with self._lock:
            connection = self._connections.get(client)
        if connection is None or self._presented.get(key := (connection.replica.incarnation, topic)) is grants:
            return
        try:
            call(client, "grants", grants.request, timeout=PRESENT_TIMEOUT_SECONDS)
        except PermissionDenied as error:  # its clock is ahead, or it has other keys since
            log.info("%s did not take the grants of %s: %s", connection.replica.broker, topic, error.message)
            grants = self._fetch(topic)
            call(client, "grants", grants.request, timeout=PRESENT_TIMEOUT_SECONDS)
        with self._lock:
            self._presented[key] = grants

    def _recover_grant(self, error: GrantMissing, key: tuple[str, str], enough: set[Right]) -> SmqError | None:
        topic = key[1]
        with self._lock:
            presented = self._presented.pop(key, None)
            # Grants that are late to be renewed are expected to be refused at some time.
            is_fresh = presented is not None and self._now() < presented.renew_at()
            again = is_fresh and key in self._refused
            if is_fresh:
                self._refused.add(key)
        if again:
            return PermissionDenied(
                f"the broker does not take the leader's grants: {error.message}",
                identity=error.identity,
                access=error.access,
            )
        if presented is None or presented is not self._grants.get(topic):
            grants = self._granted(topic)  # another thread has fetched them since
        else:
            self._grants.pop(topic, None)
            grants = self._fetch(topic)
        if enough.isdisjoint(grants.rights):
            return self._denial(topic, next(it for it in Right if it in enough)) if enough else error
        return None

    def _recover_certificate(self, error: Unauthenticated, used: Certificate) -> SmqError | None:
        with self._renewing:
            current = self._certificate
            if current is not None and current is not used and self._is_good(current):
                return None
            if self._replacement is used and self._now() < used.renew_at():
                return error  # a new certificate does not help
            self._replacement = self._log_in()
        return None

    def _denial(self, topic: str, right: Right) -> PermissionDenied | None:
        """Why the leader gives no grant of this right; None if it has just given one."""
        access = str(topic_right(right, topic))
        try:
            reply = self._service().CheckAccess(auth_pb2.CheckAccessRequest(verb=right.value, topic=topic))
            # The leader's answers to idle clients may be older ones, but not after this call.
            if reply.allowed and right in self._fetch(topic).rights:
                return None
            reason = reply.reason
        except PermissionDenied as error:
            return error
        except SmqError as error:
            log.debug("the leader did not say why %s is not allowed: %s", access, error.message)
            reason = ""
        return PermissionDenied(reason or f"this client may not {access}", access=access)

    # ---- the thread that renews

    def _start_renewing(self) -> None:
        """Starts the thread, or lets it find the next time anew."""
        with self._lock:
            if self._closed:
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._renew_while_used, name="smq-credentials", daemon=True)
                self._thread.start()
            else:
                self._wake.set()

    def _renew_while_used(self) -> None:
        pause = 0.0
        while True:
            due_in = self._next_renewal() - self._now()
            is_due = not self._wake.wait(max(MIN_RENEWAL_SECONDS, pause, due_in))
            self._wake.clear()
            with self._lock:
                in_use = self._used or len(self._connections) > 0
                if self._closed or (is_due and not in_use):
                    self._thread = None
                    return
                self._used = self._used and not is_due
            if is_due:
                pause = 0.0 if self._renew_due() else RETRY_AFTER_SECONDS

    def _in_use(self) -> list[tuple[fl.FlightClient, Replica, str]]:
        """Each open connection, with each topic for which it is used."""
        with self._lock:
            return [(client, it.replica, topic) for client, it in self._connections.items() for topic in it.topics]

    def _next_renewal(self) -> float:
        """When anything is to be renewed or forgotten next."""
        used = {topic for _, _, topic in self._in_use()}
        times = [it.renew_at() if topic in used else it.expires_at for topic, it in self._grants.copy().items()]
        if self._certificate is not None:
            times.append(self._certificate.renew_at(RENEWED_AFTER))
        return min(times, default=self._now() + IDLE_SECONDS)

    def _renew_due(self) -> bool:
        """Renews what has passed half of its life, and presents new grants. False if some of it failed."""
        certificate = self._certificate
        complete = True
        if certificate is not None and self._now() >= certificate.renew_at(RENEWED_AFTER):
            complete = self._try("the certificate", self._renew_certificate)
        in_use = self._in_use()
        used = {topic for _, _, topic in in_use}
        for topic, grants in self._grants.copy().items():
            if topic not in used and self._now() >= grants.expires_at:
                del self._grants[topic]
            elif topic in used and self._now() >= grants.renew_at():
                complete = self._try(f"the grants of {topic}", partial(self._fetch, topic)) and complete
        with self._lock:
            now = self._now()
            self._presented = {key: it for key, it in self._presented.items() if now < it.expires_at}
        for client, replica, topic in in_use:
            key, held = (replica.incarnation, topic), self._grants.get(topic)
            if held is not None and self._presented.get(key) is not held:
                with self._lock:
                    self._refused.discard(key)
                self._try(f"the grants of {topic} at {replica.broker}", partial(self._present, client, topic, held))
        return complete

    def _renew_certificate(self) -> None:
        with self._renewing:
            self._log_in()

    def _try(self, what: str, renew: Callable[[], object]) -> bool:
        """False if it failed. What was fetched before may be good for a while."""
        try:
            renew()
        except SmqError as error:
            level = logging.INFO if isinstance(error, Unavailable) or what in self._failing else logging.WARNING
            if not self._closed:
                log.log(level, "%s could not be renewed yet: %s", what, error.message)
            self._failing.add(what)
            return False
        except Exception:
            log.exception("%s could not be renewed", what)
            return False
        self._failing.discard(what)
        return True
