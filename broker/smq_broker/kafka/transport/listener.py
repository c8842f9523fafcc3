"""Listens for Kafka clients, and serves them in its own thread."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from contextlib import suppress

from prometheus_client import CollectorRegistry

from smq_broker.kafka.protocol.api_versions import with_api_versions
from smq_broker.kafka.protocol.messages import ApiTable
from smq_broker.kafka.protocol.sessions import ConnectionAccess, OpenAccess
from smq_broker.kafka.transport.connection import Connection
from smq_broker.kafka.transport.either_server import EitherServer
from smq_broker.kafka.transport.limits import KafkaLimits
from smq_broker.kafka.transport.metrics import KafkaMetrics
from smq_broker.kafka.transport.request_memory import RequestMemory
from smq_broker.kafka.transport.tls import HANDSHAKE_SECONDS, SHUTDOWN_SECONDS, ServerTls
from smq_broker.runtime.log_limiter import LogLimiter
from smq_broker.runtime.threads import Task, ThreadSupervisor
from smq_core.model.addresses import join_address, split_address
from smq_storage.process.listeners import create_listener

# Connections that the system accepts ahead of the thread, as all clients of a broker come back at once.
BACKLOG = 1024
# How often idle connections are looked for.
MAX_CHECK_INTERVAL_SECONDS = 10.0


class KafkaListener:
    """``address`` is where it listens. Raises OSError if the port cannot be bound.

    Handlers of ``apis`` run in the event loop ``loop`` of the thread, so they must not block. ``access`` says which
    requests a connection may make. With ``tls`` it speaks TLS; with ``clear_access``, which is that of connections in
    clear text, these are served, too.
    """

    def __init__(
        self,
        listen: str,
        *,
        apis: ApiTable,
        registry: CollectorRegistry,
        threads: ThreadSupervisor,
        limits: KafkaLimits | None = None,
        access: ConnectionAccess | None = None,
        tls: ServerTls | None = None,
        clear_access: ConnectionAccess | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        host, port = split_address(listen)
        self._socket = create_listener(host, port)
        self.address = join_address(host, self._socket.getsockname()[1])
        self._threads = threads
        self._tls = tls
        self._access = access or OpenAccess()
        self._clear_access = clear_access
        self.apis = with_api_versions(apis)
        self.limits = limits or KafkaLimits()
        self.memory = RequestMemory(self.limits.request_memory_bytes)
        self.metrics = KafkaMetrics(registry)
        self.log_limiter = LogLimiter()
        self._connections: set[Connection] = set()
        self._by_host: Counter[str] = Counter()
        self._loop = loop or asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._all_ended = asyncio.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Raises Unavailable if the system starts no more threads."""
        self._thread = self._threads.start(Task(kind="kafka", run=self._run, restarts=False))

    def stop(self, timeout_seconds: float = 1.0) -> None:
        """Accepts no more connections or requests, answers those that are handled, and ends the thread.

        After ``timeout_seconds`` the connections end without answers.
        """
        if self._thread is None:
            self._socket.close()
            self._loop.close()
            return
        with suppress(RuntimeError):  # the thread has died
            self._loop.call_soon_threadsafe(self._begin_stop, timeout_seconds)
        # A handler that blocks must not keep the process from ending.
        self._thread.join(2 * timeout_seconds)

    def admit(self, connection: Connection, host: str) -> bool:
        per_host = self.limits.max_connections_per_host
        if (
            self._stopping.is_set()
            or len(self._connections) >= self.limits.max_connections
            or (per_host is not None and self._by_host[host] >= per_host)
        ):
            return False
        self._connections.add(connection)
        self._by_host[host] += 1
        self.metrics.connections.inc()
        return True

    def discard(self, connection: Connection, host: str) -> None:
        self._connections.discard(connection)
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]
        self.metrics.connections.dec()
        if self._stopping.is_set() and not self._connections:
            self._all_ended.set()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            accepting = tasks.create_task(self._accept())
            checks = tasks.create_task(self._check_idle())
            await self._stopping.wait()
            accepting.cancel()
            await self._all_ended.wait()
            checks.cancel()

    async def _accept(self) -> None:
        """Until it is cancelled."""
        tls, clear_access = self._tls, self._clear_access
        if tls is not None and clear_access is not None:
            server = EitherServer(
                self._socket,
                clear=lambda: Connection(self, clear_access),
                tls=lambda: Connection(self, self._access),
                context=lambda: tls.context,
            )
            await server.serve(BACKLOG)
            return
        accepts = await self._loop.create_server(
            lambda: Connection(self, self._access),
            sock=self._socket,
            backlog=BACKLOG,
            ssl=tls.context if tls is not None else None,
            ssl_handshake_timeout=HANDSHAKE_SECONDS if tls is not None else None,
            ssl_shutdown_timeout=SHUTDOWN_SECONDS if tls is not None else None,
        )
        try:
            await asyncio.Event().wait()
        finally:
            accepts.close()

    def _begin_stop(self, timeout_seconds: float) -> None:
        self._stopping.set()
        if not self._connections:
            self._all_ended.set()
        for connection in list(self._connections):
            connection.finish()
        self._loop.call_later(timeout_seconds, self._abort_all)

    def _abort_all(self) -> None:
        for connection in list(self._connections):
            connection.abort()

    async def _check_idle(self) -> None:
        while True:
            await asyncio.sleep(min(self.limits.idle_seconds / 4, MAX_CHECK_INTERVAL_SECONDS))
            now = self._loop.time()
            for connection in list(self._connections):
                connection.check_idle(now)
