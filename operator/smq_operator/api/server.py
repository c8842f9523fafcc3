"""The gRPC server: the control API of ``leader.proto`` on one port."""

from __future__ import annotations

import grpc

from smq_core.errors import InvalidRequest
from smq_core.model.addresses import join_address
from smq_operator.runtime.settings import host_port
from smq_proto.v1 import leader_pb2, leader_pb2_grpc

_OPTIONS = [
    ("grpc.so_reuseport", 0),  # a second leader on the port must fail instead of taking every other connection
    ("grpc.http2.min_ping_interval_without_data_ms", 500),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.max_concurrent_streams", 10_000),
    ("grpc.max_receive_message_length", 16 * 1024 * 1024),
]


class LeaderService(leader_pb2_grpc.LeaderServicer):
    """Every method of ``leader.proto``, each from the one of ``parts`` that implements it."""

    def __init__(self, *parts: object) -> None:
        for method in leader_pb2.DESCRIPTOR.services_by_name["Leader"].methods:
            (handler,) = (getattr(part, method.name) for part in parts if hasattr(part, method.name))
            setattr(self, method.name, handler)


class GrpcServer:
    """Takes its port when it is constructed, so that its address is known, and answers once it is started.

    Raises InvalidRequest if the port is taken. Construct it on the event loop.
    """

    def __init__(self, listen: str) -> None:
        host, port = host_port(listen)
        self._server = grpc.aio.server(options=_OPTIONS)
        self._running = False
        try:
            self.port = self._server.add_insecure_port(join_address(host, port))
        except RuntimeError:
            self.port = 0
        if self.port == 0:
            raise InvalidRequest(
                f"cannot listen on {listen}: another process has that port, or the address is not this machine's. "
                "Stop it, or choose another with --listen"
            )

    async def start(self, service: LeaderService) -> None:
        leader_pb2_grpc.add_LeaderServicer_to_server(service, self._server)
        await self._server.start()
        self._running = True

    async def stop(self) -> None:
        """Ends all calls. May be called again."""
        if self._running:
            self._running = False
            await self._server.stop(0.2)
