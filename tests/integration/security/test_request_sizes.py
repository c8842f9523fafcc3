"""Neither strangers nor clients can make a secure leader take memory."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from smq_core.access.peers import LEADER_SERVER_NAME
from support.processes.peak_memory import PeakMemory
from support.processes.secure_cluster import SecureCluster
from support.waiting import HANG_GUARD

pytestmark = [pytest.mark.integration, pytest.mark.slow]

MIB = 1 << 20
CALLS = 24


def test_a_stranger_is_refused_before_its_request_is_received(cluster: SecureCluster) -> None:
    """The requests have 7 MiB each, which a broker's report may have."""

    def call(number: int) -> grpc.StatusCode:
        return rejection_of(cluster, bytes(7 * MIB), f"wrong-{number}" if number % 2 else "").code()

    peak = PeakMemory(cluster.leader_pid)
    with ThreadPoolExecutor(CALLS) as pool:
        assert set(pool.map(call, range(CALLS))) == {grpc.StatusCode.UNAUTHENTICATED}
    growth = peak.growth()
    print(f"{CALLS} requests of 7 MiB without a token: {growth / MIB:.0f} MiB")
    assert growth < 64 * MIB


def test_a_client_is_refused_before_its_report_is_received(cluster: SecureCluster) -> None:
    """Only brokers send requests of more than 1 MiB. This one would be three million reports of segments."""
    token = cluster.token_file("no-broker").read_text()
    peak = PeakMemory(cluster.leader_pid)
    sixty_segments = bytes([7 << 3 | 2, 120, *[6 << 3 | 2, 0] * 60])
    refused = rejection_of(cluster, sixty_segments * 50_000, token)
    assert refused.code() is grpc.StatusCode.PERMISSION_DENIED
    assert peak.growth() < 32 * MIB
    assert "no-broker may not call Brokers.Report: only a broker may" in str(refused.details())


def rejection_of(cluster: SecureCluster, report: bytes, token: str) -> grpc.RpcError:
    """The leader's answer to this report, over a separate connection."""
    roots = grpc.ssl_channel_credentials(cluster.ca_file.read_bytes())
    options = [("grpc.ssl_target_name_override", LEADER_SERVER_NAME), ("grpc.use_local_subchannel_pool", 1)]
    metadata = [("authorization", f"Bearer {token}")] if token else []
    with grpc.secure_channel(cluster.address, roots, options) as channel, pytest.raises(grpc.RpcError) as refused:
        channel.unary_unary("/smq.v1.Brokers/Report")(report, metadata=metadata, timeout=HANG_GUARD)
    return refused.value
