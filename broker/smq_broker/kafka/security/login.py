"""SaslHandshake and SaslAuthenticate: a client logs in, and does so again on the same connection (KIP-368)."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import structlog
from kio.schema.errors import ErrorCode

from smq_broker.access.denials import Denials
from smq_broker.kafka.protocol.messages import (
    Api,
    ApiTable,
    ClientConnection,
    ProtocolError,
    RequestContext,
    ResponseBody,
)
from smq_broker.kafka.protocol.sessions import Session
from smq_broker.kafka.security.identities import Identities
from smq_broker.kafka.security.mechanisms import MECHANISMS, BadCredentials
from smq_broker.runtime.log_limiter import LogLimiter
from smq_core.errors import SmqError, Unauthenticated
from smq_core.model.names import bounded, shown

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
# Of what a client says of itself, in the log.
MAX_SHOWN_CHARACTERS = 200

log = structlog.get_logger(__name__)


class LoginApi:
    """``clock`` is in seconds since the Unix epoch."""

    def __init__(self, identities: Identities, denials: Denials, clock: Callable[[], float] = time.time) -> None:
        self._identities = identities
        self._denials = denials
        self._clock = clock
        self._limiter = LogLimiter()
        self.apis: ApiTable = {
            SASL_HANDSHAKE: Api(0, 1, self.handshake),
            SASL_AUTHENTICATE: Api(0, 2, self.authenticate),
        }

    async def handshake(self, request: Any, context: RequestContext) -> ResponseBody:
        """A client that logs in again keeps to its mechanism."""
        connection = context.connection
        session, wanted = connection.session, request.mechanism
        if context.version == 0:  # what would follow are no requests; librdkafka looks for this version all the same
            connection.is_finishing = True
            return {"error_code": ErrorCode.unsupported_version, "mechanisms": tuple(MECHANISMS)}
        if wanted not in MECHANISMS or (session is not None and session.mechanism != wanted):
            connection.is_finishing = True
            return {"error_code": ErrorCode.unsupported_sasl_mechanism, "mechanisms": tuple(MECHANISMS)}
        connection.mechanism = wanted
        return {"error_code": ErrorCode.none, "mechanisms": tuple(MECHANISMS)}

    async def authenticate(self, request: Any, context: RequestContext) -> ResponseBody:
        """Without an answer of a leader the connection ends, and the client tries again: its token may be good."""
        connection = context.connection
        if not connection.mechanism:
            return self._refused(connection, ErrorCode.illegal_sasl_state, "SaslHandshake comes first")
        mechanism, connection.mechanism = connection.mechanism, ""
        try:
            session = await self._session(mechanism, request.auth_bytes)
            former = connection.session
            if former is not None and former.identity != session.identity:
                raise BadCredentials(f"this connection is one of {former.identity}, and stays that")
        except (BadCredentials, Unauthenticated) as error:
            return self._refused(connection, ErrorCode.sasl_authentication_failed, str(error))
        except SmqError as error:
            raise ProtocolError("no_leader", f"nobody says whose a token is: {error.message}") from None
        if former is not None:
            session.streams = former.streams
        connection.session = session
        self._record(connection, session)
        left = session.ends_at - asyncio.get_running_loop().time()
        lifetime = timedelta(0) if math.isinf(left) else timedelta(milliseconds=max(1, int(left * 1000)))
        return {"error_code": ErrorCode.none, "error_message": None, "auth_bytes": b"", "session_lifetime": lifetime}

    async def _session(self, mechanism: str, sent: bytes) -> Session:
        """Raises BadCredentials, Unauthenticated, Unavailable."""
        given = MECHANISMS[mechanism](sent)
        found = await self._identities.of(given.token)
        if given.user and given.user != found.name:
            raise BadCredentials(f"the token is not one of {shown(bounded(given.user, MAX_SHOWN_CHARACTERS))}")
        now, ends_at = asyncio.get_running_loop().time(), math.inf
        if found.expires_at:
            ends_at = now + found.expires_at - self._clock()
        return Session(found.name, given.token, mechanism, ends_at)

    def _refused(self, connection: ClientConnection, code: ErrorCode, message: str) -> ResponseBody:
        """The connection ends with this answer, as Kafka's does."""
        connection.is_finishing = True
        who = connection.peer.rpartition(":")[0]
        self._denials.record(f"a Kafka client at {who}", "SaslAuthenticate", Unauthenticated(message))
        return {"error_code": code, "error_message": message, "auth_bytes": b""}

    def _record(self, connection: ClientConnection, session: Session) -> None:
        left_out = self._limiter.admit((session.identity, connection.peer.rpartition(":")[0]))
        if left_out is not None:
            log.info(
                "access.kafka_login",
                identity=shown(session.identity),
                mechanism=session.mechanism,
                peer=connection.peer,
                software=connection.software,
                left_out=left_out,
            )
