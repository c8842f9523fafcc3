"""The gRPC servers: the services of ``proto/smq/v1`` on one port."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeAlias

import grpc

from smq_core.errors import InvalidRequest
from smq_core.model.addresses import join_address
from smq_operator.api.access.interceptor import AccessInterceptor
from smq_operator.api.admin import AdminService
from smq_operator.api.auth import AuthService
from smq_operator.api.brokers import BrokerService
from smq_operator.api.groups import GroupService
from smq_operator.api.publishes import PublishService
from smq_operator.api.request_sizes import MAX_REPORT_BYTES, RequestSizes
from smq_operator.api.topics import TopicService
from smq_operator.reconcile.topics.directory import TopicDirectory
from smq_operator.runtime.settings import host_port
from smq_operator.security.access.anonymous_access import AnonymousAccess
from smq_operator.security.leader_security import LeaderSecurity
from smq_proto.v1.admin_pb2_grpc import add_AdminServicer_to_server
from smq_proto.v1.auth_pb2_grpc import add_AuthServicer_to_server
from smq_proto.v1.brokers_pb2_grpc import add_BrokersServicer_to_server
from smq_proto.v1.groups_pb2_grpc import add_GroupsServicer_to_server
from smq_proto.v1.publishes_pb2_grpc import add_PublishesServicer_to_server
from smq_proto.v1.topics_pb2_grpc import add_TopicsServicer_to_server
from smq_storage.process.listeners import create_listener
from smq_storage.process.shared_port import LOOPBACK, SharedPort

_OPTIONS = [
    ("grpc.so_reuseport", 0),  # a second leader on the port must fail instead of taking every other connection
    ("grpc.http2.min_ping_interval_without_data_ms", 500),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.max_concurrent_streams", 10_000),
    ("grpc.max_receive_message_length", MAX_REPORT_BYTES),
]


MakeChecks: TypeAlias = Callable[[Callable[[str], str]], AccessInterceptor]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderServices:
    """One handler for each service of ``proto/smq/v1``."""

    brokers: BrokerService
    topics: TopicService
    groups: GroupService
    publishes: PublishService
    admin: AdminService
    auth: AuthService


class Server(Protocol):
    """Has its port when it is constructed, so that its address is known, and answers once it is started."""

    port: int

    async def start(self, services: LeaderServices) -> None: ...

    async def stop(self) -> None:
        """Ends all calls. May be called again."""
        ...


def make_server(
    listen: str, security: LeaderSecurity | None, topics: Callable[[], TopicDirectory], *, permissive: bool = False
) -> Server:
    """With ``security`` it speaks TLS and lets nobody in without a token; with ``permissive`` also in clear text.

    ``topics`` returns the topics of this leader. Raises InvalidRequest if the port is taken. Call it on the event loop.
    """
    if security is None:
        return GrpcServer(listen)
    credentials = security.certificate.server_credentials()
    known = partial(AccessInterceptor, security.access, topics)
    if not permissive:
        return GrpcServer(listen, known(), credentials)
    anonymous = partial(AccessInterceptor, AnonymousAccess(security.access), topics)
    return PermissiveServer(listen, credentials, known=known, anonymous=anonymous)


class GrpcServer:
    """One of gRPC. ``checks`` see each call before its handler; without ``credentials`` it speaks clear text.

    Raises InvalidRequest if the port is taken. Construct it on the event loop.
    """

    def __init__(
        self, listen: str, checks: AccessInterceptor | None = None, credentials: grpc.ServerCredentials | None = None
    ) -> None:
        host, port = host_port(listen)
        interceptors = [RequestSizes(), *([checks] if checks is not None else [])]
        self._server = grpc.aio.server(options=_OPTIONS, interceptors=interceptors)
        self._running = False
        try:
            if credentials is None:
                self.port = self._server.add_insecure_port(join_address(host, port))
            else:
                self.port = self._server.add_secure_port(join_address(host, port), credentials)
        except RuntimeError:
            self.port = 0
        if self.port == 0:
            raise port_taken(listen)

    async def start(self, services: LeaderServices) -> None:
        add_BrokersServicer_to_server(services.brokers, self._server)
        add_TopicsServicer_to_server(services.topics, self._server)
        add_GroupsServicer_to_server(services.groups, self._server)
        add_PublishesServicer_to_server(services.publishes, self._server)
        add_AdminServicer_to_server(services.admin, self._server)
        add_AuthServicer_to_server(services.auth, self._server)
        await self._server.start()
        self._running = True

    async def stop(self) -> None:
        if self._running:
            self._running = False
            await self._server.stop(0.2)


class PermissiveServer:
    """The server of the required mode, and beside it one for callers in clear text, on the same port.

    ``known`` and ``anonymous`` make their checks, by what says where a call comes from. Raises InvalidRequest.
    """

    def __init__(
        self, listen: str, credentials: grpc.ServerCredentials, *, known: MakeChecks, anonymous: MakeChecks
    ) -> None:
        try:
            listener = create_listener(*host_port(listen))
        except OSError:
            raise port_taken(listen) from None

        def client_of(peer: str) -> str:
            return self._shared.client_of(peer)

        self._known = GrpcServer(f"{LOOPBACK}:0", known(client_of), credentials)
        self._anonymous = GrpcServer(f"{LOOPBACK}:0", anonymous(client_of))
        self._shared = SharedPort(listener, clear=self._anonymous.port, tls=self._known.port)
        self.port = self._shared.port

    async def start(self, services: LeaderServices) -> None:
        await self._known.start(services)
        await self._anonymous.start(services)
        await self._shared.start()

    async def stop(self) -> None:
        self._shared.close()
        await asyncio.gather(self._known.stop(), self._anonymous.stop())


def port_taken(listen: str) -> InvalidRequest:
    return InvalidRequest(
        f"cannot listen on {listen}: another process has that port, or the address is not this machine's. "
        "Stop it, or choose another with --listen"
    )
