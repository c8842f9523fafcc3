"""Connects to brokers as the client that a connection is for: with its own token, so that its rights stay in one place.

A client in clear text, which a release without security or a permissive one has, is connected in clear text.
"""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

from kio.index import load_request_schema
from kio.schema.errors import ErrorCode

from smq_broker.kafka.cluster import KafkaNode
from smq_broker.kafka.protocol.entities import build, encode
from smq_broker.kafka.protocol.messages import ProtocolError
from smq_broker.kafka.protocol.sessions import Session
from smq_broker.kafka.protocol.upstream_codec import decode_response
from smq_broker.kafka.proxy.brokers.upstream import Upstream, UpstreamLost
from smq_broker.kafka.proxy.proxy_metrics import ProxyMetrics
from smq_broker.kafka.security.login import SASL_AUTHENTICATE, SASL_HANDSHAKE
from smq_core.model.addresses import join_address

# Of one connection with its login, within the cluster.
CONNECT_SECONDS = 2.0
# After a broker could not be reached, requests for it fail at once for this time: nobody else has to wait for it.
UNREACHABLE_SECONDS = 1.0
HANDSHAKE_VERSION, AUTHENTICATE_VERSION = 1, 2


class ClientTls:
    """Trusts the roots of the release, which are read anew because others replace them."""

    def __init__(self, ca_file: str) -> None:
        self._ca_file = Path(ca_file)
        self._roots = b""
        self._context: ssl.SSLContext | None = None

    def context(self) -> ssl.SSLContext:
        """Raises OSError if the roots cannot be read."""
        roots = self._ca_file.read_bytes()
        if self._context is None or roots != self._roots:
            context = ssl.create_default_context(cadata=roots.decode("ascii", "replace"))
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            self._context, self._roots = context, roots
        return self._context


class Dialer:
    """``tls`` is None in a release without security."""

    def __init__(self, tls: ClientTls | None, metrics: ProxyMetrics) -> None:
        self._tls = tls
        self._metrics = metrics
        self._unreachable: dict[int, float] = {}
        """Brokers, with the time from which on they are tried again."""

    async def connect(self, node: KafkaNode, session: Session | None) -> Upstream:
        """Raises UpstreamLost."""
        address, loop = join_address(node.host, node.port), asyncio.get_running_loop()
        if loop.time() < self._unreachable.get(node.id, 0.0):
            raise UpstreamLost(f"broker {address} could not be reached a moment ago", was_sent=False)
        self._unreachable = {id_: until for id_, until in self._unreachable.items() if loop.time() < until}
        upstream: Upstream | None = None
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                context = self._tls.context() if self._tls is not None and session is not None else None
                _, upstream = await loop.create_connection(
                    lambda: Upstream(self._metrics.connections.inc), node.host, node.port, ssl=context
                )
                if session is not None:
                    await log_in(upstream, session)
                return upstream
        except (OSError, TimeoutError, UpstreamLost) as error:
            self._metrics.failures.inc()
            if not isinstance(error, UpstreamLost):
                self._unreachable[node.id] = loop.time() + UNREACHABLE_SECONDS
            raise UpstreamLost(f"broker {address} cannot be reached: {error}", was_sent=False) from None
        finally:
            if upstream is not None and not upstream.token and session is not None:
                upstream.end("nobody has logged in")


async def log_in(upstream: Upstream, session: Session) -> None:
    """Also logs in again with another token. Raises UpstreamLost.

    If the broker refuses the token, the session of the client ends.
    """
    token = session.token
    handshake = build(load_request_schema(SASL_HANDSHAKE, HANDSHAKE_VERSION), {"mechanism": "OAUTHBEARER"})
    await upstream.request(SASL_HANDSHAKE, HANDSHAKE_VERSION, None, (encode(handshake),))
    sent = {"auth_bytes": f"n,,\x01auth=Bearer {token}\x01\x01".encode()}
    login = build(load_request_schema(SASL_AUTHENTICATE, AUTHENTICATE_VERSION), sent)
    body = await upstream.request(SASL_AUTHENTICATE, AUTHENTICATE_VERSION, None, (encode(login),))
    try:
        answer = decode_response(body, SASL_AUTHENTICATE, AUTHENTICATE_VERSION)
    except ProtocolError as error:
        raise UpstreamLost(error.message, was_sent=False) from None
    if answer.error_code is not ErrorCode.none:
        session.ended_because = f"a broker refuses the token of {session.identity}: {answer.error_message}"
        raise UpstreamLost(session.ended_because, was_sent=False)
    upstream.token = token
