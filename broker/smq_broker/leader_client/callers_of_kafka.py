"""What the leader says of Kafka clients. Each call carries the token of the client, and so has its rights only.

So the broker needs no right to speak for others, and the leader answers what it answers any program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import grpc
from google.protobuf.empty_pb2 import Empty

from smq_broker.leader_client.first_answer import first_answer
from smq_broker.leader_client.leader_channels import LeaderChannels
from smq_core.errors import Unavailable
from smq_proto.connection_failures import cause_of
from smq_proto.v1 import auth_pb2 as pb
from smq_proto.v1.auth_pb2_grpc import AuthStub
from smq_storage.process.locks import make_lock

# A client waits for it.
TIMEOUT_SECONDS = 5.0

T = TypeVar("T")


class CallersOfKafka:
    """``leaders`` are the known addresses of leaders. Its calls block; safe from many threads.

    They raise Unauthenticated if the token counts no more, PermissionDenied, Unavailable, and what else the leader
    answers with.
    """

    def __init__(self, leaders: Callable[[], Sequence[str]], channels: LeaderChannels) -> None:
        self._leaders = leaders
        self._channels = channels
        self._lock = make_lock()
        self._open: dict[str, grpc.Channel] = {}

    def who_am_i(self, token: str) -> pb.WhoAmIReply:
        return self._call(token, lambda stub: stub.WhoAmI, Empty())

    def grants(self, token: str, topic: str) -> pb.GetGrantsReply:
        """``topic`` is ``namespace/name``."""
        return self._call(token, lambda stub: stub.GetGrants, pb.GetGrantsRequest(topic=topic))

    def may(self, token: str, verb: str, topic: str, group: str = "") -> bool:
        """Whether the caller may do this. ``topic`` is ``namespace/name``, or ``namespace/`` for all in it."""
        request = pb.CheckAccessRequest(verb=verb, topic=topic, group=group)
        reply: pb.CheckAccessReply = self._call(token, lambda stub: stub.CheckAccess, request)
        return reply.allowed

    def _call(self, token: str, method: Callable[[Any], Callable[..., T]], request: object) -> T:
        metadata = (("authorization", f"Bearer {token}"),)

        def at(leader: str) -> T:
            try:
                return method(AuthStub(self._channel(leader)))(request, timeout=TIMEOUT_SECONDS, metadata=metadata)
            except grpc.RpcError as error:
                known = self._channels.failure_of(error, leader)
                if known is not None:
                    raise known from None
                self._drop(leader)  # the roots may have changed since it was made
                cause = cause_of(str(error.details() if isinstance(error, grpc.Call) else error))
                raise Unavailable(f"{leader} does not answer: {cause}") from None

        return first_answer(self._leaders(), at)

    def _channel(self, leader: str) -> grpc.Channel:
        with self._lock:
            found = self._open.get(leader)
        if found is not None:
            return found
        made = self._channels.connect_for_callers(leader)
        with self._lock:
            return self._open.setdefault(leader, made)

    def _drop(self, leader: str) -> None:
        """Calls of others may be running on the channel: it closes when they have let go of it."""
        with self._lock:
            self._open.pop(leader, None)
