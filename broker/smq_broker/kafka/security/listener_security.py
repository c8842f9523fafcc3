"""Constructs what a listener of a secure release needs: SASL, and the checks of requests."""

from __future__ import annotations

from collections.abc import Callable

from smq_broker.access.anonymous import AnonymousAccess
from smq_broker.access.denials import Denials
from smq_broker.access.secure_callers import SecureAccess
from smq_broker.kafka.executor import Blocking
from smq_broker.kafka.protocol.messages import ApiTable
from smq_broker.kafka.protocol.sessions import ConnectionAccess
from smq_broker.kafka.security.caller_rights import CallerRights
from smq_broker.kafka.security.clear_connections import ClearConnections
from smq_broker.kafka.security.connection_access import SecureConnections
from smq_broker.kafka.security.identities import Identities
from smq_broker.kafka.security.login import LoginApi
from smq_broker.kafka.topics import KafkaTopics
from smq_broker.leader_client.callers_of_kafka import CallersOfKafka
from smq_broker.runtime.broker_metrics import BrokerMetrics
from smq_core.access.certificates import Certificate
from smq_core.model.names import is_label


class ListenerSecurity:
    """``certificate`` is the broker's, ``access`` returns what it knows of callers once it has one.

    ``callers`` knows what the leader says of clients. With ``permissive`` it serves clear text, too.
    """

    def __init__(
        self,
        certificate: Certificate | None,
        *,
        access: Callable[[], SecureAccess],
        callers: CallersOfKafka,
        broker_metrics: BrokerMetrics,
        permissive: bool = False,
    ) -> None:
        self.certificate = certificate
        # Separate threads: strangers that try to log in must not keep rights waiting, nor reads of old messages both.
        self._blocking = Blocking()
        self._denials = Denials(broker_metrics)
        self._rights = CallerRights(
            callers=callers,
            grants=lambda: access().grants,
            blocking=self._blocking,
            leader_seen_at=lambda: access().leader_seen_at(),
        )
        self.clear_access: ConnectionAccess | None = None
        if permissive:
            self.clear_access = ClearConnections(AnonymousAccess(broker_metrics, str))
        self.apis: ApiTable = LoginApi(Identities(callers, Blocking()), self._denials).apis

    def access(self, topics: KafkaTopics) -> SecureConnections:
        """The checks of requests, by the names of these topics."""

        async def full_name(name: str) -> str | None:
            if is_label(name):
                return topics.full_name(name)
            return await self._blocking.call(lambda: topics.full_name(name))

        return SecureConnections(self._rights, self._denials, full_name)
