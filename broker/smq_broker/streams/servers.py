"""The Flight servers of a broker: one, or in mode permissive one for TLS and one for clear text at the same port."""

from __future__ import annotations

import asyncio
from typing import Protocol

from smq_broker.access.anonymous import AnonymousAccess
from smq_broker.access.security import Security
from smq_broker.runtime.broker_metrics import BrokerMetrics
from smq_broker.runtime.threads import Task, ThreadSupervisor
from smq_broker.streams.server import BrokerServer, RequestHandler
from smq_broker.streams.server_rotation import ServerRotation
from smq_core.model.addresses import split_address
from smq_storage.process.listeners import create_listener
from smq_storage.process.shared_port import LOOPBACK, SharedPort


class Servers(Protocol):
    """Serve at ``port`` since they were made."""

    port: int

    def swap(self) -> None:
        """There is another certificate. Called by one thread."""
        ...


def start_servers(
    listen: str,
    *,
    security: Security,
    handler: RequestHandler,
    broker_metrics: BrokerMetrics,
    threads: ThreadSupervisor,
) -> Servers:
    """Raises OSError or Arrow's errors if the port cannot be bound, Unavailable without threads."""
    if security.permissive:
        return PermissiveServers(
            listen, security=security, handler=handler, broker_metrics=broker_metrics, threads=threads
        )
    return _rotation(listen, security, handler, threads)


def _rotation(listen: str, security: Security, handler: RequestHandler, threads: ThreadSupervisor) -> ServerRotation:
    return ServerRotation(listen, lambda at: BrokerServer(at, handler, security.certificate), threads)


class PermissiveServers:
    """The server for TLS is there once there is a certificate."""

    def __init__(
        self,
        listen: str,
        *,
        security: Security,
        handler: RequestHandler,
        broker_metrics: BrokerMetrics,
        threads: ThreadSupervisor,
    ) -> None:
        self._security = security
        self._handler = handler
        self._threads = threads
        self._secure: ServerRotation | None = None
        anonymous = AnonymousAccess(broker_metrics, lambda peer: self._shared.client_of(peer))
        self._open = BrokerServer(f"{LOOPBACK}:0", handler.with_access(anonymous))
        self._shared = SharedPort(create_listener(*split_address(listen)), clear=self._open.port)
        self.port = self._shared.port
        if security.certificate is not None:
            self.swap()
        threads.start(
            Task(kind="shared-port", run=lambda: asyncio.run(self._shared.serve()), endless=True, restarts=False)
        )

    def swap(self) -> None:
        if self._secure is not None:
            self._secure.swap()
            return
        self._secure = _rotation(f"{LOOPBACK}:0", self._security, self._handler, self._threads)
        self._shared.tls = self._secure.port
