"""Finds out from the other operators whether one of them leads, when the API server is unreachable.

Otherwise a leader that is cut off only from the API server would continue forever beside its successor, with the
brokers that are connected to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import grpc

from smq_core.access.peers import LEADER_SERVER_NAME
from smq_core.model.addresses import join_address
from smq_operator.kube.client.kinds import Resource
from smq_operator.kube.informer.cache import ResourceCache
from smq_operator.kube.settings import COMPONENT_LABEL
from smq_proto.channel_options import NO_PROXY
from smq_proto.v1 import admin_pb2
from smq_proto.v1.admin_pb2_grpc import AdminStub

ANSWER_TIMEOUT_SECONDS = 1.0
# The name of an operator's port in its Pod.
PORT_NAME = "grpc"


PeerDialer: TypeAlias = Callable[[str], grpc.aio.Channel]


def open_channel(address: str) -> grpc.aio.Channel:
    """To an operator of a release without security."""
    return grpc.aio.insecure_channel(address, [NO_PROXY])


def secure_dialer(roots: Callable[[], bytes], token: str) -> PeerDialer:
    """``token`` is one that operators recognise without the API server, which is away when they look for each other."""
    options = [NO_PROXY, ("grpc.ssl_target_name_override", LEADER_SERVER_NAME)]
    caller = grpc.access_token_call_credentials(token)

    def dial(address: str) -> grpc.aio.Channel:
        credentials = grpc.composite_channel_credentials(grpc.ssl_channel_credentials(roots()), caller)
        return grpc.aio.secure_channel(address, credentials, options)

    return dial


async def leading_peer(cache: ResourceCache, pod: str, dials: Sequence[PeerDialer]) -> str:
    """The address of an operator in another Pod than ``pod`` that leads; empty if none does.

    While a release is being secured, some operators speak TLS and others do not: each is called by all ``dials``.
    """
    calls = [(address, dial) for address in _addresses(cache, pod) for dial in dials]
    answers = await asyncio.gather(*(leads(address, dial) for address, dial in calls))
    return next((address for (address, _), leads in zip(calls, answers, strict=True) if leads), "")


def _addresses(cache: ResourceCache, pod: str) -> Iterator[str]:
    for (_, name), peer in cache.pods.items():
        host = (peer.get("status") or {}).get("podIP")
        is_operator = (peer["metadata"].get("labels") or {}).get(COMPONENT_LABEL) == "operator"
        if is_operator and name != pod and host:
            yield from (join_address(host, port) for port in _ports(peer))


def _ports(pod: Resource) -> Iterator[int]:
    for container in pod["spec"]["containers"]:
        yield from (port["containerPort"] for port in container.get("ports") or () if port.get("name") == PORT_NAME)


async def leads(address: str, dial: PeerDialer) -> bool:
    """Whether the operator at this address leads."""
    async with dial(address) as channel:
        try:
            await AdminStub(channel).ListBrokers(admin_pb2.ListBrokersRequest(), timeout=ANSWER_TIMEOUT_SECONDS)
        except grpc.aio.AioRpcError:
            return False
        return True
