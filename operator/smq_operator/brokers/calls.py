"""Calls Flight actions of brokers: one client per incarnation, a deadline for every call, few calls at a time."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import pyarrow.flight as fl
from google.protobuf.message import Message

from smq_core.access.certificates import Certificate
from smq_core.errors import SmqError, Unavailable, Unreachable
from smq_core.model.entities import Replica
from smq_operator.brokers.dialer import OPEN, BrokerDialer
from smq_proto import flight
from smq_proto.channel_options import NO_PROXY

# A limit, so that a broker that hangs cannot occupy every thread.
MAX_CALLS_PER_BROKER = 8

MAX_BACKGROUND_CALLS_PER_BROKER = 4

_OPTIONS = [
    NO_PROXY,
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 500),
]


class BrokerCalls(Protocol):
    """Calls to brokers by incarnation: ``BrokerClients``, or what stands in for it in tests."""

    async def call(
        self,
        replica: Replica,
        action: str,
        request: Message,
        *,
        timeout: float,
        urgent: bool = False,
        background: bool = False,
    ) -> bytes: ...

    def forget(self, incarnation: str) -> None: ...


class _BrokerConnection:
    def __init__(self, client: asyncio.Future[fl.FlightClient], certificate: Certificate | None) -> None:
        self.client = client
        self.certificate = certificate
        self.slots = asyncio.Semaphore(MAX_CALLS_PER_BROKER)
        self.background = asyncio.Semaphore(MAX_BACKGROUND_CALLS_PER_BROKER)


class BrokerClients:
    """The leader's Flight clients. Use it on the event loop; the calls run in threads."""

    def __init__(self, threads: int = 256, dialer: BrokerDialer = OPEN) -> None:
        self._dialer = dialer
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="broker-call")
        self._urgent_pool = ThreadPoolExecutor(8, thread_name_prefix="broker-status")
        self._connections: dict[str, _BrokerConnection] = {}

    async def call(
        self,
        replica: Replica,
        action: str,
        request: Message,
        *,
        timeout: float,
        urgent: bool = False,
        background: bool = False,
    ) -> bytes:
        """Runs one action at this incarnation and returns the body of its result. ``timeout`` is in seconds.

        An ``urgent`` call is short and does not queue behind others. A ``background`` call may take long, and others do
        not queue behind it. Raises the SmqError that the broker returned, or Unavailable.
        """
        connection = self._connection(replica)
        loop = asyncio.get_running_loop()
        try:
            if urgent:
                async with asyncio.timeout(timeout + 0.1):
                    client = await asyncio.shield(connection.client)
                    return await loop.run_in_executor(self._urgent_pool, _call, client, action, request, timeout)
            async with asyncio.timeout(timeout + 1.0), connection.background if background else connection.slots:
                client = await asyncio.shield(connection.client)
                return await loop.run_in_executor(self._pool, _call, client, action, request, timeout)
        except TimeoutError:
            self._drop(replica.incarnation, connection)
            raise Unavailable(f"broker {replica.broker} at {replica.address} did not answer in {timeout} s") from None
        except _ConnectionFailed as error:
            self._drop(replica.incarnation, connection)
            raise Unavailable(f"broker {replica.broker} at {replica.address}: {error}") from error

    def _connection(self, replica: Replica) -> _BrokerConnection:
        """A connection that brokers will not end soon: one with a former certificate is replaced."""
        connection, certificate = self._connections.get(replica.incarnation), self._dialer.certificate()
        if connection is None or connection.certificate is not certificate:
            loop = asyncio.get_running_loop()
            client = loop.run_in_executor(self._pool, self._dialer.connect, replica, _OPTIONS)
            connection = self._connections[replica.incarnation] = _BrokerConnection(client, certificate)
        return connection

    def _drop(self, incarnation: str, connection: _BrokerConnection) -> None:
        """The next call opens a new connection, because this one may be broken. Its running calls go on."""
        if self._connections.get(incarnation) is connection:
            del self._connections[incarnation]

    def forget(self, incarnation: str) -> None:
        """Closes the connection to this incarnation."""
        connection = self._connections.pop(incarnation, None)
        if connection is not None and connection.client.done() and connection.client.exception() is None:
            self._pool.submit(connection.client.result().close)

    def close(self) -> None:
        for incarnation in list(self._connections):
            self.forget(incarnation)
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._urgent_pool.shutdown(wait=False, cancel_futures=True)


class _ConnectionFailed(Exception):
    """The connection failed, or the deadline passed."""


def _call(client: fl.FlightClient, action: str, request: Message, timeout: float) -> bytes:
    try:
        return flight.call(client, action, request, timeout=timeout)
    except Unreachable as error:
        raise _ConnectionFailed(error.message) from error
    except SmqError:
        raise
    except Exception as error:  # the client was closed meanwhile, or Flight raised its own error
        raise _ConnectionFailed(f"{type(error).__name__}: {error}") from error
