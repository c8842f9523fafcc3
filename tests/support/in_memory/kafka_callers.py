"""What a leader says of Kafka clients, without a network: tokens, rights on one topic, and groups."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from smq_broker.kafka.executor import Blocking
from smq_broker.kafka.security.caller_rights import CallerRights
from smq_broker.kafka.security.connection_access import SecureConnections
from smq_broker.kafka.security.identities import Identities
from smq_broker.kafka.security.login import LoginApi
from smq_core.access.grants import Grant
from smq_core.access.quotas import NO_QUOTA, Quota
from smq_core.access.rights import Right
from smq_core.errors import PermissionDenied, Unauthenticated, Unavailable
from smq_core.kafka_topics.names import topic_of_own_name
from smq_core.model.entities import SECOND, Topic
from smq_proto.v1 import auth_pb2 as pb
from support.in_memory.secure_access import SecureBrokerAccess


class KnownCallers:
    """See ``CallersOfKafka``. ``tokens`` has identities by token, ``rights`` those on the topic by identity."""

    def __init__(self, broker: SecureBrokerAccess) -> None:
        self._broker = broker
        self.tokens: dict[str, str] = {"ada's": "ada"}
        self.expires_at = 0.0
        """When all tokens expire."""
        self.rights: dict[str, set[Right]] = {}
        self.allowed: set[tuple[str, str, str, str]] = set()
        """Identity, verb, topic and group."""
        self.quota: Quota = NO_QUOTA
        self.is_away = False
        self.calls = 0

    def _identity(self, token: str) -> str:
        self.calls += 1
        if self.is_away:
            raise Unavailable("no leader answers")
        if token not in self.tokens:
            raise Unauthenticated("this release does not know this token")
        return self.tokens[token]

    def who_am_i(self, token: str) -> pb.WhoAmIReply:
        return pb.WhoAmIReply(identity=self._identity(token), expires_at=int(self.expires_at * SECOND))

    def grants(self, token: str, topic: str) -> pb.GetGrantsReply:
        identity = self._identity(token)
        held = self.rights.get(identity, set()) if topic == self._broker.topic.name else set()
        if not held:
            raise PermissionDenied(f"{identity} has no right to {topic}", identity=identity, access="")
        grants: list[Grant] = [self._broker.grant(right, identity, quota=self.quota) for right in held]
        return pb.GetGrantsReply(
            grants=[self._broker.signer.sign(it) for it in grants], expires_at=int(grants[0].expires_at * SECOND)
        )

    def may(self, token: str, verb: str, topic: str, group: str = "") -> bool:
        return (self._identity(token), verb, topic, group) in self.allowed


class SecureListenerParts:
    """What ``ListenerSecurity`` constructs, with callers that a test knows."""

    def __init__(self, topic: Topic, make_blocking: Callable[[], Blocking] = Blocking) -> None:
        self.broker = SecureBrokerAccess(topic)
        self.callers = KnownCallers(self.broker)
        blocking, access = make_blocking(), self.broker.access
        clock = partial(getattr, self.broker, "now")
        self.rights = CallerRights(
            callers=self.callers,  # type: ignore[arg-type]
            grants=lambda: access.grants,
            blocking=blocking,
            leader_seen_at=access.leader_seen_at,
            clock=clock,
        )
        self.login = LoginApi(Identities(self.callers, blocking, clock), access.denials, clock)  # type: ignore[arg-type]
        self.access = SecureConnections(self.rights, access.denials, _full_name)


# What clients call the topic ``travel/flights``, too.
OTHER_NAME = "Flights_1"


async def _full_name(name: str) -> str | None:
    return "travel/flights" if name == OTHER_NAME else topic_of_own_name(name)
