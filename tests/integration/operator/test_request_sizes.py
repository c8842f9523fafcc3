"""Neither the leader nor a relay keeps a request that is too large in memory, compressed or not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from smq_storage.process.seaweedfs import SeaweedProcess
from support.processes.local_cluster import LocalCluster
from support.waiting import HANG_GUARD, eventually

pytestmark = pytest.mark.integration

MIB = 1 << 20
REQUEST_BYTES = 256 * MIB
# What a process may take for a request. The leader accepts 16 MiB, and gRPC has a message more than once.
ALLOWED_BYTES = 96 * MIB


@pytest.fixture(scope="module")
def relayed(seaweed: SeaweedProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A leader and two brokers that relay."""
    folder = tmp_path_factory.mktemp("sizes")
    arguments = ("--broker-arg=--relay=127.0.0.1:0",)
    with LocalCluster(folder, seaweed.settings(f"sizes-{folder.name}"), brokers=2, arguments=arguments) as cluster:
        yield cluster


class PeakMemory:
    """The most that a process has had from now on, beyond what it has now."""

    def __init__(self, pid: int) -> None:
        self._status = Path(f"/proc/{pid}/status")
        Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak is what it has now
        self._before = self._read("VmRSS")

    def growth(self) -> int:
        return self._read("VmHWM") - self._before

    def _read(self, what: str) -> int:
        lines = dict(line.split(":", 1) for line in self._status.read_text().splitlines())
        return int(lines[what].split()[0]) * 1024


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
