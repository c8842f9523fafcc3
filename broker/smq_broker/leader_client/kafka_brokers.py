"""Which brokers serve Kafka clients, as the leader lists them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import grpc

from smq_broker.leader_client.first_answer import first_answer
from smq_broker.leader_client.leader_channels import LeaderChannels
from smq_proto.pages import all_pages
from smq_proto.v1 import admin_pb2 as pb
from smq_proto.v1.admin_pb2_grpc import AdminStub

TIMEOUT_SECONDS = 5.0
# A broker that is only suspected may answer.
_MAY_ANSWER = (pb.BrokerList.Broker.ALIVE, pb.BrokerList.Broker.SUSPECT, pb.BrokerList.Broker.DRAINING)


def list_kafka_brokers(leaders: Callable[[], Sequence[str]], channels: LeaderChannels) -> dict[str, str]:
    """The addresses of their listeners, by incarnation. Blocks. Raises Unavailable, and what else a leader raises."""

    def at(leader: str) -> dict[str, str]:
        try:
            with channels.connect(leader) as channel:
                pages = list(
                    all_pages(AdminStub(channel).ListBrokers, pb.ListBrokersRequest(), timeout=TIMEOUT_SECONDS)
                )
        except grpc.RpcError as error:
            raise channels.error_of(error, leader) from None
        listed = [it for page in pages for it in page.brokers]
        return {it.incarnation: it.kafka_address for it in listed if it.kafka_address and it.state in _MAY_ANSWER}

    return first_answer(leaders(), at)
