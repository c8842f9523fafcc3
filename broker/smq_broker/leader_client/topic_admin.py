"""Creates, changes and deletes topics at the leader, in the name of a client of this broker."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import grpc

from smq_broker.leader_client.first_answer import first_answer
from smq_broker.leader_client.leader_channels import LeaderChannels
from smq_core.model.entities import TopicSchema
from smq_proto.v1 import admin_pb2 as pb
from smq_proto.v1.admin_pb2_grpc import AdminStub
from smq_proto.wire import columns_to_pb

# A leader answers a deletion within eight seconds, and others sooner.
TIMEOUT_SECONDS = 10.0

# Of a call of gRPC.
Metadata: TypeAlias = tuple[tuple[str, str], ...]


class TopicAdmin:
    """Its methods block, and raise what the leader raises; Unavailable if none answers. Safe from many threads.

    ``leaders`` returns the known addresses of leaders, the current one first. Without a ``token`` it has the rights of
    this broker, which are all of them in an open release and none in others.
    """

    def __init__(
        self, leaders: Callable[[], Sequence[str]], channels: LeaderChannels, token: str | None = None
    ) -> None:
        self._leaders = leaders
        self._channels = channels
        self._token = token

    def create(self, name: str, namespace: str, spec: Mapping[str, Any], *, preview: bool = False) -> None:
        """Raises Conflict if there is such a topic, SpecRejected if the leader does not accept the spec."""
        manifest = {
            "apiVersion": "seaweedmq.io/v1alpha1",
            "kind": "Topic",
            "metadata": {"name": name, "namespace": namespace},
            "spec": spec,
        }
        request = pb.ApplyTopicRequest(manifest=json.dumps(manifest), preview=preview, must_be_new=True)
        self._call(lambda admin, metadata: admin.ApplyTopic(request, timeout=TIMEOUT_SECONDS, metadata=metadata))

    def alter(self, topic: str, schema: TopicSchema, settings: Mapping[str, Any], *, preview: bool = False) -> None:
        """Changes these fields of the topic's spec; None resets one. ``schema`` is the present one, and stays."""
        request = pb.AlterTopicRequest(
            topic=topic,
            columns=columns_to_pb(schema.columns),
            schema_version=schema.version,
            settings=json.dumps(settings),
            preview=preview,
        )
        self._call(lambda admin, metadata: admin.AlterTopic(request, timeout=TIMEOUT_SECONDS, metadata=metadata))

    def delete(self, topic: str) -> None:
        """Returns when no broker acks a message of the topic any more."""
        request = pb.DeleteTopicRequest(topic=topic)
        self._call(lambda admin, metadata: admin.DeleteTopic(request, timeout=TIMEOUT_SECONDS, metadata=metadata))

    def of_caller(self, token: str) -> TopicAdmin:
        """The same with the rights of the client that has this token."""
        return TopicAdmin(self._leaders, self._channels, token)

    def _call(self, call: Callable[[Any, Metadata], object]) -> None:
        token = self._token
        metadata: Metadata = (("authorization", f"Bearer {token}"),) if token is not None else ()

        def at(leader: str) -> None:
            channels = self._channels
            connect = channels.connect if token is None else channels.connect_for_callers
            try:
                with connect(leader) as channel:
                    call(AdminStub(channel), metadata)
            except grpc.RpcError as error:
                raise channels.error_of(error, leader) from None

        first_answer(self._leaders(), at)
