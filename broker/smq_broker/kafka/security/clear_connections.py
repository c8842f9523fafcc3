"""Connections in clear text at a permissive broker: they may do everything, and are recorded."""

from __future__ import annotations

import asyncio

from smq_broker.access.anonymous import RECHECK_SECONDS, AnonymousAccess
from smq_broker.kafka.protocol.messages import ClientConnection, ProtocolError
from smq_broker.kafka.protocol.sessions import OpenAccess, RequestAccess
from smq_broker.kafka.security.login import SASL_AUTHENTICATE, SASL_HANDSHAKE

# In metrics and in the log, as calls of Flight have names.
CALL = "kafka"


class ClearConnections(OpenAccess):
    """See ``ConnectionAccess``. A connection counts again each minute."""

    def __init__(self, anonymous: AnonymousAccess) -> None:
        self._anonymous = anonymous

    def admit(self, connection: ClientConnection, api_key: int) -> RequestAccess:
        if api_key in (SASL_HANDSHAKE, SASL_AUTHENTICATE):
            raise ProtocolError("clear_text", "a client logs in in clear text: set security.protocol=SASL_SSL")
        now = asyncio.get_running_loop().time()
        if now >= connection.record_at:
            connection.record_at = now + RECHECK_SECONDS
            self._anonymous.record(connection.peer, CALL)
        return super().admit(connection, api_key)
