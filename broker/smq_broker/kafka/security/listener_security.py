"""Constructs what a listener of a secure release needs: TLS, SASL, and the checks of requests."""

from __future__ import annotations

from smq_broker.access.secure_callers import SecureAccess
from smq_broker.kafka.executor import Blocking
from smq_broker.kafka.protocol.messages import ApiTable
from smq_broker.kafka.security.caller_rights import CallerRights
from smq_broker.kafka.security.connection_access import SecureConnections
from smq_broker.kafka.security.identities import Identities
from smq_broker.kafka.security.login import LoginApi
from smq_broker.kafka.topics import KafkaTopics
from smq_broker.leader_client.callers_of_kafka import CallersOfKafka
from smq_core.access.certificates import Certificate
from smq_core.model.names import is_label


class ListenerSecurity:
    """``certificate`` is the broker's at the start; ``callers`` knows what the leader says of clients."""

    def __init__(self, certificate: Certificate, access: SecureAccess, callers: CallersOfKafka) -> None:
        self.certificate = certificate
        # Separate threads: reads of old messages must not keep logins waiting.
        self._blocking = blocking = Blocking()
        rights = CallerRights(
            callers=callers, grants=access.grants, blocking=blocking, leader_seen_at=access.leader_seen_at
        )
        login = LoginApi(Identities(callers, blocking), access.denials)
        self._rights = rights
        self._denials = access.denials
        self.apis: ApiTable = login.apis

    def access(self, topics: KafkaTopics) -> SecureConnections:
        """The checks of requests, by the names of these topics."""

        async def full_name(name: str) -> str | None:
            if is_label(name):
                return topics.full_name(name)
            return await self._blocking.call(lambda: topics.full_name(name))

        return SecureConnections(self._rights, self._denials, full_name)
