"""Neither the leader nor a relay keeps a request that is too large in memory, compressed or not."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest

from smq_core.model.atomic_publish import MAX_FILES
from smq_operator.api.report_checks import MAX_SEGMENTS
from smq_proto.v1 import brokers_pb2, groups_pb2, publishes_pb2
from smq_proto.v1 import data_pb2 as pb
from smq_proto.v1.brokers_pb2_grpc import BrokersStub
from smq_proto.v1.groups_pb2_grpc import GroupsStub
from smq_proto.v1.publishes_pb2_grpc import PublishesStub
from smq_proto.wire import PROTOCOL
from smq_storage.process.seaweedfs import SeaweedProcess
from support.processes.local_cluster import LocalCluster
from support.processes.peak_memory import PeakMemory
from support.waiting import HANG_GUARD, eventually

pytestmark = pytest.mark.integration

MIB = 1 << 20
REQUEST_BYTES = 256 * MIB
# What a process may take for a request. The leader accepts 8 MiB, and gRPC has a message more than once.
ALLOWED_BYTES = 96 * MIB


@pytest.fixture(scope="module")
def relayed(seaweed: SeaweedProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A leader and two brokers that relay."""
    folder = tmp_path_factory.mktemp("sizes")
    arguments = ("--broker-arg=--relay=127.0.0.1:0",)
    with LocalCluster(folder, seaweed.settings(f"sizes-{folder.name}"), brokers=2, arguments=arguments) as cluster:
        yield cluster


def action(kind: bytes, size: int) -> bytes:
    """The message of a Flight action with a body of that size, with the fields ``type`` and ``body``."""
    length = bytearray()
    left = size
    while left >= 0x80:
        length.append(left & 0x7F | 0x80)
        left >>= 7
    return b"\x0a" + bytes([len(kind)]) + kind + b"\x12" + bytes(length) + bytes([left]) + bytes(size)


@pytest.mark.parametrize("compression", grpc.Compression, ids=lambda it: it.name)
def test_a_leader_refuses_a_large_request_before_it_is_there(
    relayed: LocalCluster, compression: grpc.Compression
) -> None:
    peak = PeakMemory(relayed.leader_pid)
    options = [("grpc.max_send_message_length", -1)]
    with (
        grpc.insecure_channel(relayed.address, options, compression) as channel,
        pytest.raises(grpc.RpcError) as refused,
    ):
        channel.unary_unary("/smq.v1.Topics/Locate")(bytes(REQUEST_BYTES), timeout=HANG_GUARD)
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert peak.growth() < ALLOWED_BYTES
    with relayed.connect() as client:
        assert len(client.admin().brokers()) == 2


@pytest.mark.parametrize("call", ["Topics/Locate", "Topics/Watch", "Groups/CommitPositions", "Auth/WhoAmI"])
def test_a_request_is_refused_before_it_is_decoded(relayed: LocalCluster, call: str) -> None:
    """Each of 4 MiB would be two million messages, which take 200 MB."""
    peak = PeakMemory(relayed.leader_pid)
    request = bytes([6 << 3 | 2, 0]) * (2 * MIB)
    with grpc.insecure_channel(relayed.address) as channel:
        made = channel.unary_stream(f"/smq.v1.{call}") if call == "Topics/Watch" else None
        with pytest.raises(grpc.RpcError, match="at most 1,048,576 are accepted: send several") as refused:
            if made is not None:
                list(made(request, timeout=HANG_GUARD))
            else:
                channel.unary_unary(f"/smq.v1.{call}")(request, timeout=HANG_GUARD)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert peak.growth() < 32 * MIB


def test_the_largest_requests_of_clients_and_brokers_are_accepted(relayed: LocalCluster) -> None:
    names = [f"{'t' * 128}-0-65536-{1_000_000 + n}" for n in range(6000)]
    with grpc.insecure_channel(relayed.address) as channel:
        positions = groups_pb2.SetPositionsRequest(topic="t", group="g", positions=dict.fromkeys(names, 1 << 40))
        files = [
            publishes_pb2.AtomicPublishRequest.File(upload="u" * 100, etag="e" * 64, rows=1 << 40, bytes=1 << 40)
            for _ in range(MAX_FILES)
        ]
        publish = publishes_pb2.AtomicPublishRequest(topic="t", app="a", owner="o", files=files)
        for send in (
            lambda: GroupsStub(channel).SetPositions(positions, timeout=HANG_GUARD),
            lambda: PublishesStub(channel).PublishAtomically(publish, timeout=HANG_GUARD),
        ):
            with pytest.raises(grpc.RpcError) as refused:
                send()
            assert refused.value.code() is grpc.StatusCode.NOT_FOUND, "there is no such topic"
        segment = pb.SegmentReport(topic="t" * 128, uid="u" * 32, segment=names[0], histogram=[1 << 20] * 64)
        report = brokers_pb2.BrokerReport(
            protocol=PROTOCOL, broker="b", incarnation="i", status=pb.BrokerStatus(segments=[segment] * MAX_SEGMENTS)
        )
        assert report.ByteSize() > 4 * MIB
        with pytest.raises(grpc.RpcError, match="a report needs the broker's name, incarnation and address"):
            BrokersStub(channel).Report(report, timeout=HANG_GUARD)


def test_a_relay_keeps_little_of_what_it_relays(relayed: LocalCluster) -> None:
    """The broker that it is for has all of it before it can refuse it, because Flight decodes it first."""
    relay = eventually(lambda: relayed.relay_address("broker-1"), what="broker-1 relays")
    with relayed.connect() as client:
        (target,) = [broker.address for broker in client.admin().brokers() if broker.name == "broker-2"]
    peak = PeakMemory(relayed.pids()["broker-1"])
    options = [
        ("grpc.max_send_message_length", -1),
        ("grpc.enable_http_proxy", 1),
        ("grpc.http_proxy", f"http://{relay}"),
    ]
    with grpc.insecure_channel(f"dns:///{target}", options) as channel:
        call = channel.unary_stream("/arrow.flight.protocol.FlightService/DoAction")
        with pytest.raises(grpc.RpcError, match=f"a request has {REQUEST_BYTES} bytes, at most 4194304") as refused:
            list(call(action(b"status", REQUEST_BYTES), timeout=HANG_GUARD))
    assert refused.value.code() is grpc.StatusCode.UNKNOWN
    assert peak.growth() < ALLOWED_BYTES
