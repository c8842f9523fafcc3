"""Flight actions to brokers: one client per incarnation, a deadline on every call, few calls at a time to each."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pyarrow.flight as fl
from google.protobuf.message import Message

from smq_core.errors import SmqError, Unavailable
from smq_core.model import Replica
from smq_proto import flight

CALLS_PER_BROKER = 8
"""So that a broker that hangs cannot take every thread."""

UNHURRIED_PER_BROKER = 4

_OPTIONS = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 500),
]


class _Line:
    def __init__(self, address: str) -> None:
        self.client = fl.connect(f"grpc://{address}", generic_options=_OPTIONS)
        self.slots = asyncio.Semaphore(CALLS_PER_BROKER)
        self.unhurried = asyncio.Semaphore(UNHURRIED_PER_BROKER)


class Brokers:
    """The leader's side of the data plane. Use it on the event loop; the calls run in ``pool``."""

    def __init__(self, threads: int = 256) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="broker-call")
        self._urgent = ThreadPoolExecutor(8, thread_name_prefix="broker-status")
        self._lines: dict[str, _Line] = {}

    async def call(
        self,
        replica: Replica,
        action: str,
        request: Message,
        *,
        timeout: float,
        urgent: bool = False,
        unhurried: bool = False,
    ) -> bytes:
        """Runs one action at this incarnation; returns the body of its result. ``timeout`` in seconds.

        An ``urgent`` one does not queue behind others, for short questions. An ``unhurried`` one may take long, and
        others do not queue behind it. Raises the SmqError that the broker answered, or Unavailable.
        """
        line = self._lines.get(replica.incarnation)
        if line is None:
            line = self._lines[replica.incarnation] = _Line(replica.address)
        loop = asyncio.get_running_loop()
        try:
            if urgent:
                async with asyncio.timeout(timeout + 0.1):
                    return await loop.run_in_executor(self._urgent, _call, line.client, action, request, timeout)
            async with asyncio.timeout(timeout + 1.0), line.unhurried if unhurried else line.slots:
                return await loop.run_in_executor(self._pool, _call, line.client, action, request, timeout)
        except TimeoutError:
            self._drop(replica.incarnation, line)
            raise Unavailable(f"broker {replica.broker} at {replica.address} did not answer in {timeout} s") from None
        except _NoAnswer as error:
            self._drop(replica.incarnation, line)
            raise Unavailable(f"broker {replica.broker} at {replica.address}: {error}") from error

    def _drop(self, incarnation: str, line: _Line) -> None:
        """The next call gets a connection of its own: this one may lead nowhere. Calls that wait on it wait on."""
        if self._lines.get(incarnation) is line:
            del self._lines[incarnation]

    def forget(self, incarnation: str) -> None:
        """This incarnation is no more."""
        line = self._lines.pop(incarnation, None)
        if line is not None:
            self._pool.submit(line.client.close)

    def close(self) -> None:
        for incarnation in list(self._lines):
            self.forget(incarnation)
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._urgent.shutdown(wait=False, cancel_futures=True)


class _NoAnswer(Exception):
    """The connection failed, or the deadline passed."""


def _call(client: fl.FlightClient, action: str, request: Message, timeout: float) -> bytes:
    try:
        return flight.call(client, action, request, timeout=timeout)
    except SmqError as error:
        if isinstance(error, Unavailable) and not getattr(error.__cause__, "extra_info", None):
            raise _NoAnswer(error.message) from error
        raise
    except Exception as error:  # a client that was closed meanwhile, and whatever else Flight may raise
        raise _NoAnswer(f"{type(error).__name__}: {error}") from error
