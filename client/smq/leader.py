"""Calls to the leader: finds it among the given addresses, follows it when it moves."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from smq.network import DIRECT, Network
from smq_core.errors import NotLeader, SmqError, Unavailable
from smq_proto.v1 import data_pb2 as pb
from smq_proto.v1 import leader_pb2_grpc
from smq_proto.wire import error_from_pb

ERROR_TRAILER = "smq-error-bin"
PAUSE = 0.1
_OPTIONS = (
    ("grpc.max_receive_message_length", 64 << 20),
    # A leader that comes back after a while is found at once, not after gRPC's own growing pauses.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
)


class LeaderLink:
    """Safe from many threads. Addresses are ``host:port``; the one that answered last is asked first."""

    def __init__(self, addresses: list[str], *, timeout: float = 10.0, network: Network = DIRECT) -> None:
        self._given = list(addresses)
        self._timeout = timeout
        self._network = network
        self._lock = threading.Lock()
        self._channels: dict[str, grpc.Channel] = {}
        self._current = self._given[0] if self._given else ""
        self._closed = False

    @property
    def exists(self) -> bool:
        """Whether there is any address to ask."""
        return bool(self._given)

    def call(self, method: str, request: Any, timeout: float | None = None) -> Any:
        """One call of the Leader service, tried at each address until one leads, within ``timeout`` seconds.

        Raises Unavailable when nobody leads within that time, or what the leader answered.
        """
        deadline = time.monotonic() + (timeout if timeout is not None else self._timeout)
        tried: set[str] = set()
        told: Unavailable | None = None
        while True:
            address = self._address()
            left = max(0.05, deadline - time.monotonic())
            # One that hangs must not use up the time of the others.
            share = left if len(self._given) == 1 else max(0.05, left / 2)
            try:
                return getattr(self._stub(address), method)(request, timeout=share)
            except grpc.RpcError as error:
                failure = _error_of(error, address)
            if not isinstance(failure, Unavailable):
                raise failure
            if isinstance(failure, NotLeader) or not getattr(failure, "answered", False):
                self._next(address, failure)
                tried.add(address)
            else:
                told = failure  # it leads, and says what it waits for
                tried.add(address)
            if told is not None and time.monotonic() >= deadline:
                raise told
            if time.monotonic() >= deadline or self._closed:
                raise Unavailable(
                    f"no leader answered at {', '.join(sorted(tried | set(self._given)))}: {failure.message}"
                )
            # With another address to try there is no need to wait.
            if self._address() in tried:
                tried.clear()
                time.sleep(min(PAUSE, max(0.0, deadline - time.monotonic())))

    def watch(self, request: pb.LocateRequest) -> Watching:
        """The stream of a topic's layouts, at the address that is thought to lead. Raises what ``next`` raises."""
        address = self._address()
        return Watching(self, address, self._stub(address).Watch(request))

    def close(self) -> None:
        with self._lock:
            self._closed = True
            for channel in self._channels.values():
                channel.close()
            self._channels.clear()

    def _address(self) -> str:
        with self._lock:
            if not self._current:
                raise Unavailable("this client was made without a leader's address: give one to connect()")
            return self._current

    def _next(self, failed: str, failure: SmqError) -> None:
        told = failure.details.get("leader")
        with self._lock:
            if self._current != failed:
                return
            if isinstance(told, str) and told and told != failed:
                self._current = told
            else:
                at = self._given.index(failed) if failed in self._given else -1
                self._current = self._given[(at + 1) % len(self._given)]

    def _stub(self, address: str) -> Any:
        with self._lock:
            if self._closed:
                raise Unavailable("the client is closed")
            channel = self._channels.get(address)
            if channel is None:
                channel = self._channels[address] = self._network.control(address, _OPTIONS)
        return leader_pb2_grpc.LeaderStub(channel)


class Watching:
    """An open stream of layouts. ``cancel`` from any thread ends it."""

    def __init__(self, link: LeaderLink, address: str, stream: Any) -> None:
        self._link = link
        self._address = address
        self._stream = stream

    def __iter__(self) -> Iterator[pb.LocateReply]:
        """Raises Unavailable when the stream breaks (the next one goes to another address), or the leader's error."""
        try:
            yield from self._stream
        except grpc.RpcError as error:
            failure = _error_of(error, self._address)
            if isinstance(failure, Unavailable):
                self._link._next(self._address, failure)
            raise failure from None
        raise Unavailable(f"the leader at {self._address} ended the stream")

    def cancel(self) -> None:
        self._stream.cancel()


def _error_of(error: grpc.RpcError, address: str) -> SmqError:
    """The SmqError behind a call's error; one without any means that nobody who leads answered."""
    for name, value in getattr(error, "trailing_metadata", lambda: None)() or ():
        if name == ERROR_TRAILER:
            try:
                failure = error_from_pb(pb.Error.FromString(value))
            except DecodeError:
                continue
            failure.__dict__["answered"] = True
            return failure
    code, details = error.code(), error.details()  # type: ignore[attr-defined]
    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED):
        return Unavailable(f"{address} did not answer ({code.name.lower()}: {details})")
    return SmqError(f"{address} answered {code.name}: {details}")
