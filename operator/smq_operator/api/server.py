"""The gRPC server: the services of ``proto/smq/v1`` on one port."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import grpc

from smq_core.errors import InvalidRequest
from smq_core.model.addresses import join_address
from smq_operator.api.access.interceptor import AccessInterceptor
from smq_operator.api.admin import AdminService
from smq_operator.api.auth import AuthService
from smq_operator.api.brokers import BrokerService
from smq_operator.api.groups import GroupService
from smq_operator.api.publishes import PublishService
from smq_operator.api.topics import TopicService
from smq_operator.reconcile.topics.directory import TopicDirectory
from smq_operator.runtime.settings import host_port
from smq_operator.security.leader_security import LeaderSecurity
from smq_proto.v1.admin_pb2_grpc import add_AdminServicer_to_server
from smq_proto.v1.auth_pb2_grpc import add_AuthServicer_to_server
from smq_proto.v1.brokers_pb2_grpc import add_BrokersServicer_to_server
from smq_proto.v1.groups_pb2_grpc import add_GroupsServicer_to_server
from smq_proto.v1.publishes_pb2_grpc import add_PublishesServicer_to_server
from smq_proto.v1.topics_pb2_grpc import add_TopicsServicer_to_server

_OPTIONS = [
    ("grpc.so_reuseport", 0),  # a second leader on the port must fail instead of taking every other connection
    ("grpc.http2.min_ping_interval_without_data_ms", 500),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.max_concurrent_streams", 10_000),
    ("grpc.max_receive_message_length", 16 * 1024 * 1024),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderServices:
    """One handler for each service of ``proto/smq/v1``."""

    brokers: BrokerService
    topics: TopicService
    groups: GroupService
    publishes: PublishService
    admin: AdminService
    auth: AuthService


class GrpcServer:
    """Takes its port when it is constructed, so that its address is known, and answers once it is started.

    With ``security`` it speaks TLS, and lets nobody in without a token. ``topics`` returns the topics of this leader.
    Raises InvalidRequest if the port is taken. Construct it on the event loop.
    """

    def __init__(self, listen: str, security: LeaderSecurity | None, topics: Callable[[], TopicDirectory]) -> None:
        host, port = host_port(listen)
        checks = [AccessInterceptor(security.access, topics)] if security is not None else []
        self._server = grpc.aio.server(options=_OPTIONS, interceptors=checks)
        self._running = False
        try:
            if security is None:
                self.port = self._server.add_insecure_port(join_address(host, port))
            else:
                credentials = security.certificate.server_credentials()
                self.port = self._server.add_secure_port(join_address(host, port), credentials)
        except RuntimeError:
            self.port = 0
        if self.port == 0:
            raise InvalidRequest(
                f"cannot listen on {listen}: another process has that port, or the address is not this machine's. "
                "Stop it, or choose another with --listen"
            )

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
        """Ends all calls. May be called again."""
        if self._running:
            self._running = False
            await self._server.stop(0.2)
