"""Who a caller is, what it may do, and its certificates and grants for brokers.

Every call here is about the caller itself, so it needs nothing but a token.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from google.protobuf.empty_pb2 import Empty

from smq_core.access.grants import GRANT_SECONDS, Grant
from smq_core.access.leader_calls import CallSubject
from smq_core.access.peers import Peer, Role, broker_server_name
from smq_core.access.policy import TOPIC_VERBS
from smq_core.access.quotas import quota_of
from smq_core.access.rights import Access, Right, group_rights, topic_right, topic_verb
from smq_core.access.server_hosts import checked_hosts
from smq_core.errors import InvalidRequest, Unauthenticated, Unavailable
from smq_core.model.entities import SECOND
from smq_operator.api.rpc_errors import unary_handler
from smq_operator.reconcile.topics.directory import TopicDirectory
from smq_operator.runtime.clock import Clock
from smq_operator.runtime.readiness import Readiness
from smq_operator.security.access.access_control import NO_TOKEN, denial_text
from smq_operator.security.authority.authorities import Authorities
from smq_operator.security.callers import Caller, current_caller
from smq_operator.security.leader_security import LeaderSecurity
from smq_proto.logins import certificate_to_pb
from smq_proto.v1 import auth_pb2

OPEN = "Open"
_RIGHTS = {right.value: right for right in Right}


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthService:
    """Who the caller is, what it may do, and what signs certificates. Without ``security`` the release is open."""

    readiness: Readiness
    topics: TopicDirectory
    clock: Clock
    security: LeaderSecurity | None
    brokers_behind: Callable[[], Collection[str]]
    """The brokers that do not trust all authorities yet."""

    @unary_handler
    async def Login(self, request: auth_pb2.LoginRequest) -> auth_pb2.LoginReply:
        security, caller = self._secured()
        if caller.is_broker != bool(request.incarnation) or (
            caller.is_broker and not caller.proves(request.incarnation)
        ):
            wanted = f"broker {request.incarnation}" if request.incarnation else "a client"
            message = f"{caller.identity} cannot log in as {wanted}: that needs the token of {wanted}"
            raise security.access.rejection(caller, "Auth.Login", message)
        now, authorities = self.clock() / SECOND, security.authorities
        lives, authority, release = authorities.lives, authorities.signing, authorities.known.release
        if caller.is_broker:
            role, name = Role.BROKER, request.incarnation
            names = [broker_server_name(request.incarnation), *checked_hosts(request.hosts)]
            expires_at = now + lives.server  # its Pod lives on, and gets new tokens
        else:
            role, name, names = Role.CLIENT, caller.identity, []
            expires_at = _until(caller, now + lives.client)
        peer = Peer(role, release, name, authority.end_of(expires_at))
        reply = certificate_to_pb(authority.issue(peer, now=now, server_names=names))
        reply.release, reply.identity, reply.authorities = release, peer.name, authorities.known.id
        if caller.is_broker:
            reply.grant_keys.append(security.grants.public_key)
        return reply

    @unary_handler
    async def GetGrants(self, request: auth_pb2.GetGrantsRequest) -> auth_pb2.GetGrantsReply:
        security, caller = self._secured()
        topic = CallSubject(topic=request.topic).full_topic
        access = security.access
        decisions = await access.rights_when_idle(caller, topic)
        rights = [right for right, decision in decisions.items() if decision.allowed]
        if not rights:
            needed = [topic_right(right, topic) for right in (Right.PRODUCE, Right.CONSUME)]
            raise access.denial(caller, needed, decisions[Right.PRODUCE])
        oldest_seconds = max(decisions[right].age_seconds for right in rights)
        managed = self.topics.topic(topic)  # after the check: nobody learns which topics there are
        if managed.topic is None:
            raise Unavailable(f"the leader has not read {managed.name} yet: try again")
        uid, now = managed.topic.uid, self.clock() / SECOND
        # A right that was taken back since its answer is gone as soon as any other one.
        expires_at = _until(caller, now + GRANT_SECONDS - oldest_seconds)
        signed = [
            security.grants.sign(
                Grant(
                    release=security.authority.release,
                    identity=caller.identity,
                    topic=managed.name,
                    uid=uid,
                    right=right,
                    expires_at=expires_at,
                    quota=quota_of(managed.topic.spec.quotas, caller.identity, right),
                )
            )
            for right in rights
        ]
        return auth_pb2.GetGrantsReply(grants=signed, expires_at=int(expires_at * SECOND))

    @unary_handler
    async def WhoAmI(self, request: Empty) -> auth_pb2.WhoAmIReply:
        caller = current_caller()
        if caller is None:
            return auth_pb2.WhoAmIReply(method=OPEN)
        return auth_pb2.WhoAmIReply(
            identity=caller.identity,
            groups=caller.groups,
            method=caller.method,
            expires_at=int(caller.expires_at * SECOND),
        )

    @unary_handler
    async def CheckAccess(self, request: auth_pb2.CheckAccessRequest) -> auth_pb2.CheckAccessReply:
        security, caller = self._secured()
        topic = CallSubject(topic=request.topic).full_topic
        needed = [[_access_of(request.verb, topic)]]
        if request.group:
            if request.verb != Right.CONSUME.value:
                raise InvalidRequest(f"a consumer group is used by {Right.CONSUME.value}, not by {request.verb}")
            of_group = list(group_rights(topic, request.group))
            # Groups of Kafka clients are of no one topic.
            needed = [of_group] if topic.endswith("/") else [*needed, of_group]
        for alternatives in needed:
            decision = await security.access.any_of(caller, alternatives)
            if not decision.allowed:
                return auth_pb2.CheckAccessReply(reason=denial_text(caller, alternatives, decision))
        return auth_pb2.CheckAccessReply(allowed=True)

    @unary_handler
    async def ListAuthorities(self, request: auth_pb2.ListAuthoritiesRequest) -> auth_pb2.AuthorityList:
        security, _ = self._secured()
        return self._authorities(security.authorities)

    @unary_handler
    async def RotateAuthority(self, request: auth_pb2.RotateAuthorityRequest) -> auth_pb2.AuthorityList:
        security, _ = self._secured()
        await security.authorities.rotate()
        return self._authorities(security.authorities)

    def _authorities(self, authorities: Authorities) -> auth_pb2.AuthorityList:
        return auth_pb2.AuthorityList(
            authorities=[
                auth_pb2.AuthorityList.Authority(
                    id=it.id,
                    phase=it.phase.value,
                    since=int(it.since * SECOND),
                    expires_at=int(it.expires_at * SECOND),
                )
                for it in authorities.known.rotation.authorities
            ],
            waits_for=authorities.waits_for(self.brokers_behind()),
        )

    def _secured(self) -> tuple[LeaderSecurity, Caller]:
        """Raises InvalidRequest in an open release, Unauthenticated if nobody is known."""
        caller = current_caller()
        if self.security is None:
            raise InvalidRequest("this release is open: everybody may do everything, and there is nothing to log in to")
        if caller is None:
            raise Unauthenticated(NO_TOKEN)
        return self.security, caller


def _until(caller: Caller, at: float) -> float:
    """Nothing that the caller gets outlives its token."""
    return min(at, caller.expires_at) if caller.expires_at else at


def _access_of(verb: str, topic: str) -> Access:
    if verb in _RIGHTS:
        return topic_right(_RIGHTS[verb], topic)
    if verb not in TOPIC_VERBS:
        raise InvalidRequest(f"{verb!r} is no right: use one of {', '.join(sorted(TOPIC_VERBS))}")
    return topic_verb(verb, topic)
