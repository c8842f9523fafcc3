"""The connections to brokers of all clients, by the connection of the client."""

from __future__ import annotations

import structlog

from smq_broker.kafka.protocol.messages import ClientConnection
from smq_broker.kafka.protocol.sessions import ConnectionAccess, RequestAccess
from smq_broker.kafka.proxy.brokers.client_upstreams import ClientUpstreams
from smq_broker.kafka.proxy.brokers.dialer import Dialer
from smq_broker.kafka.proxy.brokers.routes import Routes
from smq_broker.kafka.proxy.brokers.upstream import UpstreamLost
from smq_broker.kafka.proxy.proxy_metrics import ProxyMetrics
from smq_broker.runtime.log_limiter import LogLimiter

log = structlog.get_logger(__name__)


class Clients:
    """Belongs to the event loop."""

    def __init__(self, routes: Routes, dialer: Dialer, metrics: ProxyMetrics) -> None:
        self.routes = routes
        self._dialer = dialer
        self._metrics = metrics
        self._limiter = LogLimiter()
        self._upstreams: dict[int, ClientUpstreams] = {}
        """By the identity of the connection's object, which lives as long as the connection."""

    def of(self, client: ClientConnection) -> ClientUpstreams:
        found = self._upstreams.get(id(client))
        if found is None:
            found = self._upstreams[id(client)] = ClientUpstreams(client, self.routes, self._dialer)
        return found

    def left(self, client: ClientConnection) -> None:
        found = self._upstreams.pop(id(client), None)
        if found is not None:
            found.close()

    def count_failure(self, lost: UpstreamLost) -> None:
        """A broker has not answered a request."""
        self._metrics.failures.inc()
        left_out = self._limiter.admit(lost.message)
        if left_out is not None:
            log.info("kafka_proxy.no_answer", error=lost.message, left_out=left_out)


class ProxiedConnections:
    """As ``inner``, and closes what a client has open at brokers when it leaves. See ``ConnectionAccess``."""

    def __init__(self, inner: ConnectionAccess, clients: Clients) -> None:
        self._inner = inner
        self._clients = clients

    def admit(self, connection: ClientConnection, api_key: int) -> RequestAccess:
        return self._inner.admit(connection, api_key)

    def end_reason(self, connection: ClientConnection, now: float) -> str | None:
        return self._inner.end_reason(connection, now)

    def max_frame_bytes(self, connection: ClientConnection) -> int | None:
        return self._inner.max_frame_bytes(connection)

    def left(self, connection: ClientConnection) -> None:
        self._clients.left(connection)
        self._inner.left(connection)
