"""Calls to the leader. The client finds it among the given addresses and follows it when it changes."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import grpc
from google.protobuf.message import DecodeError

from smq.transport.dialer import DIRECT, Dialer
from smq_core.errors import (
    InvalidRequest,
    NotLeader,
    PermissionDenied,
    SmqError,
    Unauthenticated,
    Unavailable,
    Unreachable,
)
from smq_proto.connection_failures import CLOSED_AT_ONCE, NO_TLS, UNTRUSTED, cause_of
from smq_proto.leader_channels import NO_TOKEN
from smq_proto.tls_probe import speaks_tls
from smq_proto.v1 import data_pb2 as pb
from smq_proto.v1.admin_pb2_grpc import AdminStub
from smq_proto.v1.auth_pb2_grpc import AuthStub
from smq_proto.v1.groups_pb2_grpc import GroupsStub
from smq_proto.v1.publishes_pb2_grpc import PublishesStub
from smq_proto.v1.topics_pb2_grpc import TopicsStub
from smq_storage.process.locks import make_lock

ERROR_TRAILER = "smq-error-bin"
RETRY_INTERVAL_SECONDS = 0.1
# The time without an answer after which a call reports what it waits for.
REPORT_WAIT_AFTER_SECONDS = 1.0
_LIST_BROKER_ACTIONS = "/arrow.flight.protocol.FlightService/ListActions"
_LIST_TOPICS = "/smq.v1.Admin/ListTopics"
_BROKER_CHECK_SECONDS = 1.0
# What gRPC says of an answer that has a status of HTTP only, such as 404.
_HTTP_STATUS = "http2 header with status"
# What gRPC says of a server that speaks HTTP/1 only, such as the leader's page and an S3 object store.
_HTTP1_STATUS = re.compile(r"http1\.x server \(HTTP status (\d+)\)")
# What a proxy answers while nothing listens behind it.
_AWAY_FOR_A_MOMENT = (502, 503, 504)
_WHERE_THE_LEADER_IS = (
    "`smq dev` listens at 127.0.0.1:7070, and on Kubernetes the leader is the Service of the operator, port 7070"
)
_CLOSE_SECONDS = 1.0
# A method of a service at one channel
_Method: TypeAlias = Callable[[grpc.Channel], Any]
_OPTIONS = (
    ("grpc.max_receive_message_length", 64 << 20),
    # Short limits, so that a leader that comes back is found at once and not after gRPC's own backoff.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
)


class LeaderClient:
    """Safe from many threads. Addresses are ``host:port``; the one that answered last is tried first.

    Each service of the leader has its stub here, whose calls take ``timeout``, in seconds. They try each address until
    one leads, and raise Unavailable if no leader answers within that time, or the leader's error.
    ``on_wait`` is called with a text for a person when a call has waited for REPORT_WAIT_AFTER_SECONDS.
    """

    def __init__(
        self,
        addresses: list[str],
        *,
        timeout: float = 10.0,
        dialer: Dialer = DIRECT,
        on_wait: Callable[[str], None] | None = None,
    ) -> None:
        self._addresses = list(addresses)
        self.timeout = timeout
        self.on_wait = on_wait
        self._dialer = dialer
        self._lock = make_lock()
        self._channels: dict[str, grpc.Channel] = {}
        self._answered: set[str] = set()
        """The addresses whose channels have carried an answer."""
        self._current = self._addresses[0] if self._addresses else ""
        self._closed = False
        channel: Any = _LeadingChannel(self._call, self._watch)
        self.topics, self.groups = TopicsStub(channel), GroupsStub(channel)
        self.publishes, self.admin = PublishesStub(channel), AdminStub(channel)
        self.auth = AuthStub(channel)

    @property
    def is_configured(self) -> bool:
        """Whether the client has any address of a leader."""
        return bool(self._addresses)

    def __str__(self) -> str:
        """The addresses, and the relay through which they are reached."""
        return ", ".join(self._addresses) + (f" via {self._dialer.via}" if self._dialer.via else "")

    def _call(self, method: _Method, request: Any, timeout: float | None) -> Any:
        began = time.monotonic()
        deadline = began + (timeout if timeout is not None else self.timeout)
        tried: set[str] = set()
        leader_error: Unavailable | None = None
        while True:
            address = self._current_address()
            left = max(0.05, deadline - time.monotonic())
            # An address that hangs must not use up the time of the others.
            attempt_timeout = left if len(self._addresses) == 1 else max(0.05, left / 2)
            try:
                return self._attempt(address, method, request, attempt_timeout)
            except grpc.RpcError as error:
                failure = self._error_from_rpc(error, address)
            if not isinstance(failure, Unavailable):
                raise failure
            if isinstance(failure, (NotLeader, Unreachable)):
                self._advance_from(address, failure)
                tried.add(address)
            else:
                leader_error = failure  # it leads, and its error says what it waits for
                tried.add(address)
            if leader_error is not None and time.monotonic() >= deadline:
                raise leader_error
            if time.monotonic() >= deadline or self._closed:
                where = ", ".join(sorted(tried | set(self._addresses)))
                raise Unavailable(f"no leader answered at {where}: {failure.message.removeprefix(f'{address}: ')}")
            if self.on_wait is not None and time.monotonic() - began >= REPORT_WAIT_AFTER_SECONDS:
                self.on_wait(describe_wait(failure))
            # Wait only when every address has been tried.
            if self._current_address() in tried:
                tried.clear()
                time.sleep(min(RETRY_INTERVAL_SECONDS, max(0.0, deadline - time.monotonic())))

    def _watch(self, method: _Method, request: Any) -> LayoutWatch:
        """Opens a stream at the address that led last. Iterating it raises the errors."""
        address = self._current_address()
        return LayoutWatch(self, address, method(self._channel(address))(request))

    def close(self) -> None:
        with self._lock:
            self._closed = True
            channels, self._channels = list(self._channels.values()), {}
        _close_all(channels)

    def _current_address(self) -> str:
        with self._lock:
            if not self._current:
                raise Unavailable("this client has no leader's address; pass one to connect()")
            return self._current

    def _advance_from(self, failed: str, failure: SmqError) -> None:
        new_leader = failure.leader if isinstance(failure, NotLeader) else ""
        with self._lock:
            if self._current != failed:
                return
            if new_leader and new_leader != failed:
                self._current = new_leader
            else:
                at = self._addresses.index(failed) if failed in self._addresses else -1
                self._current = self._addresses[(at + 1) % len(self._addresses)]

    def _attempt(self, address: str, method: _Method, request: Any, timeout: float) -> Any:
        reply = self._send(address, method, request, timeout)
        self._answered.add(address)
        return reply

    def _send(self, address: str, method: _Method, request: Any, timeout: float) -> Any:
        call = method(self._channel(address))
        if self.on_wait is None:
            return call(request, timeout=timeout)
        reply = call.future(request, timeout=timeout)
        try:
            return reply.result(min(timeout, REPORT_WAIT_AFTER_SECONDS))
        except grpc.FutureTimeoutError:
            if timeout > REPORT_WAIT_AFTER_SECONDS:
                self.on_wait(f"waiting for an answer of {address}")
            return reply.result()

    def _error_from_rpc(self, error: grpc.RpcError, address: str) -> SmqError:
        """As the function; also recognises servers that are no leader, whose addresses are a common mistake."""
        if error.code() == grpc.StatusCode.UNIMPLEMENTED and self._is_broker(address):
            return InvalidRequest(f"{address} is the address of a broker, not of the leader; {_WHERE_THE_LEADER_IS}")
        details = error.details() or ""
        # Not of a proxy whose leader is away for a moment, such as 503.
        http = _HTTP_STATUS in details and error.code() != grpc.StatusCode.UNAVAILABLE
        http1 = _HTTP1_STATUS.search(details)
        http = http or (http1 is not None and int(http1[1]) not in _AWAY_FOR_A_MOMENT)
        if http or (error.code() == grpc.StatusCode.UNIMPLEMENTED and not self._is_leader(address)):
            return InvalidRequest(
                f"something else answers at {address}: {'a server of HTTP' if http else 'a gRPC server'} that is not "
                f"the leader of SeaweedMQ; {_WHERE_THE_LEADER_IS}"
            )
        return self._misconfigured(details, address) or _error_from_rpc(error, address)

    def _misconfigured(self, details: str, address: str) -> SmqError | None:
        """What has to be changed here before a leader can answer; None if nothing is known to be wrong."""
        if NO_TOKEN in details:
            return Unauthenticated(details.partition(NO_TOKEN)[2])
        security, cause = self._dialer.security, cause_of(details)
        if security is None:
            if cause == CLOSED_AT_ONCE and not self._dialer.via and speaks_tls(address):
                return InvalidRequest(
                    f"what listens at {address} speaks TLS. If it is the leader, pass ca_file (--ca-file, "
                    "SMQ_CA_FILE), the file with the roots of its release, and a token"
                )
            return None
        if cause == NO_TLS:
            return InvalidRequest(f"the leader at {address} does not speak TLS: connect without a CA file and a token")
        if cause == UNTRUSTED:
            if self._drop(address):
                return None  # it was trusted once, so the file may have other roots by now
            return InvalidRequest(
                f"the certificate of the leader at {address} is not signed by the authorities of {security.ca_file}: "
                "it is that of another release, or the file is older than its roots"
            )
        return None

    def _drop(self, address: str) -> bool:
        """The next call reads the roots anew. Returns whether there was an answer over the channel."""
        with self._lock:
            channel = self._channels.pop(address, None)
            answered = address in self._answered
            self._answered.discard(address)
        if channel is not None:
            _close_all([channel])
        return answered

    def _is_leader(self, address: str) -> bool:
        """Whether a call is known there that leaders of all versions have."""
        with self._lock:
            channel = self._channels.get(address)
        if channel is None:
            return True  # closed meanwhile, so that nobody can tell
        try:
            list_topics: Any = channel.unary_unary(_LIST_TOPICS)
            list_topics(b"", timeout=_BROKER_CHECK_SECONDS)
        except grpc.RpcError as error:
            return bool(error.code() != grpc.StatusCode.UNIMPLEMENTED)  # type: ignore[attr-defined]
        return True

    def _is_broker(self, address: str) -> bool:
        """Whether Arrow Flight is spoken there, and actions of brokers are offered."""
        with self._lock:
            channel = self._channels.get(address)
        if channel is None:
            return False
        try:
            list_actions: Any = channel.unary_stream(_LIST_BROKER_ACTIONS)
            return any(b"seal" in action for action in list_actions(b"", timeout=_BROKER_CHECK_SECONDS))
        except grpc.RpcError:
            return False

    def _channel(self, address: str) -> grpc.Channel:
        with self._lock:
            if self._closed:
                raise Unavailable("the client is closed")
            channel = self._channels.get(address)
            if channel is None:
                channel = self._channels[address] = self._dialer.leader_channel(address, _OPTIONS)
        return channel


class _LeadingChannel:
    """The channel of the stubs: a call goes to the address that leads."""

    def __init__(self, unary: Callable[..., Any], stream: Callable[..., LayoutWatch]) -> None:
        self._unary, self._stream = unary, stream

    def unary_unary(self, method: str, **codec: Any) -> Callable[..., Any]:
        def call(request: Any, timeout: float | None = None) -> Any:
            return self._unary(lambda channel: channel.unary_unary(method, **codec), request, timeout)

        return call

    def unary_stream(self, method: str, **codec: Any) -> Callable[..., LayoutWatch]:
        return lambda request: self._stream(lambda channel: channel.unary_stream(method, **codec), request)


class LayoutWatch:
    """An open stream of layouts. Any thread may ``cancel`` it."""

    def __init__(self, client: LeaderClient, address: str, stream: Any) -> None:
        self._client = client
        self._address = address
        self._stream = stream

    def __iter__(self) -> Iterator[pb.LocateReply]:
        """Raises Unavailable if the stream breaks (the next stream goes to another address), or the leader's error."""
        try:
            yield from self._stream
        except grpc.RpcError as error:
            failure = self._client._error_from_rpc(error, self._address)
            if isinstance(failure, Unavailable):
                self._client._advance_from(self._address, failure)
            raise failure from None
        raise Unavailable(f"the leader at {self._address} ended the stream")

    def cancel(self) -> None:
        self._stream.cancel()


def describe_wait(failure: SmqError) -> str:
    """For a person: why the leader has not carried out a call yet, which is tried again."""
    if isinstance(failure, Unreachable):
        return f"no leader at {failure.message}; it is tried again"
    return f"waiting for the leader: {failure.message}"


def _error_from_rpc(error: grpc.RpcError, address: str) -> SmqError:
    """The SmqError in a failed call's trailers, which the leader sent; Unreachable if nothing answered."""
    for name, value in getattr(error, "trailing_metadata", lambda: None)() or ():
        if name == ERROR_TRAILER:
            from smq_proto.error_conversion import error_from_pb  # imported late: calls that succeed do not need it

            try:
                return error_from_pb(pb.Error.FromString(value))
            except DecodeError:
                continue
    code, details = error.code(), error.details()  # type: ignore[attr-defined]
    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED):
        return Unreachable(f"{address}: {cause_of(f'{code.name}: {details}')}")
    if code == grpc.StatusCode.UNAUTHENTICATED:
        return Unauthenticated(f"the leader at {address} does not know who this client is: {details}")
    if code == grpc.StatusCode.PERMISSION_DENIED:
        return PermissionDenied(f"the leader at {address} does not allow this: {details}")
    if code == grpc.StatusCode.UNIMPLEMENTED:
        return SmqError(f"the leader at {address} is of an earlier version, which does not have this call: upgrade it")
    return SmqError(f"the leader at {address} answered with an error: {cause_of(details or code.name)}")


def _close_all(channels: Sequence[grpc.Channel]) -> None:
    """Closes channels within a second.

    gRPC waits without end for a call that was interrupted while it began, for example by Ctrl-C. Nobody can use such a
    channel any more, and its thread ends with the process.
    """

    def close() -> None:
        for channel in channels:
            channel.close()

    closing = threading.Thread(target=close, name="smq-close", daemon=True)
    closing.start()
    closing.join(_CLOSE_SECONDS)
