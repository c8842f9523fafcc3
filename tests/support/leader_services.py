"""All services of the leader as one object, for tests that serve or call some methods of several of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import grpc

from smq_proto.v1.admin_pb2_grpc import AdminServicer, AdminStub, add_AdminServicer_to_server
from smq_proto.v1.auth_pb2_grpc import AuthServicer, AuthStub, add_AuthServicer_to_server
from smq_proto.v1.brokers_pb2_grpc import BrokersServicer, BrokersStub, add_BrokersServicer_to_server
from smq_proto.v1.groups_pb2_grpc import GroupsServicer, GroupsStub, add_GroupsServicer_to_server
from smq_proto.v1.publishes_pb2_grpc import PublishesServicer, PublishesStub, add_PublishesServicer_to_server
from smq_proto.v1.topics_pb2_grpc import TopicsServicer, TopicsStub, add_TopicsServicer_to_server

if TYPE_CHECKING:
    from smq_operator.api.server import LeaderServices


class LeaderServicer(BrokersServicer, TopicsServicer, GroupsServicer, PublishesServicer, AdminServicer, AuthServicer):
    """Knows every method and implements none."""

    def serve_at(self, server: grpc.Server) -> None:
        add_BrokersServicer_to_server(self, server)
        add_TopicsServicer_to_server(self, server)
        add_GroupsServicer_to_server(self, server)
        add_PublishesServicer_to_server(self, server)
        add_AdminServicer_to_server(self, server)
        add_AuthServicer_to_server(self, server)


def call_of(channel: grpc.Channel, method: str) -> Callable[..., Any]:
    """The method of that name, of whichever service."""
    stubs = [stub(channel) for stub in (BrokersStub, TopicsStub, GroupsStub, PublishesStub, AdminStub, AuthStub)]
    return _only(method, *stubs)


def handler_of(services: LeaderServices, method: str) -> Callable[..., Any]:
    """The handler of that name, of whichever service."""
    return _only(
        method, services.brokers, services.topics, services.groups, services.publishes, services.admin, services.auth
    )


def _only(method: str, *services: object) -> Callable[..., Any]:
    (found,) = (getattr(service, method) for service in services if hasattr(service, method))
    return found  # type: ignore[no-any-return]
