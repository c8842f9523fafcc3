"""What a broker needs for a thousand connections of Kafka clients that say nothing, in clear text and in TLS."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from smq_broker.kafka.protocol.messages import API_VERSIONS
from smq_storage.process.seaweedfs import SeaweedProcess
from support.kafka_socket import KafkaSocket, TlsSocket
from support.processes.local_cluster import LocalCluster
from support.processes.secure_cluster import SecureCluster
from support.waiting import eventually

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(0)]

CONNECTIONS = 1000
MAX_SHARE = 0.05
MAX_BYTES = 30_000
SECONDS = 20.0
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36


def cluster_of(kind: str, folder: Path, seaweed: SeaweedProcess) -> LocalCluster:
    store, flag = seaweed.settings(folder.name), "--broker-arg=--kafka=127.0.0.1:0"
    if kind == "TLS":
        return SecureCluster(folder / "cluster", store, brokers=1, more=(flag,))
    return LocalCluster(folder / "cluster", store, brokers=1, arguments=("--broker-memory", "1Gi", flag))


def dialer(cluster: LocalCluster, address: str) -> Callable[[], KafkaSocket]:
    """Makes connections that are served: those of a secure release have logged in."""
    if not isinstance(cluster, SecureCluster):
        return lambda: KafkaSocket(address)
    cluster.token_file("app")
    token, roots = cluster.token_file("app").read_text().strip(), cluster.ca_file.read_bytes()

    def dial() -> KafkaSocket:
        made = TlsSocket(address, roots, "127.0.0.1")
        made.send(SASL_HANDSHAKE, 1, 1, mechanism="PLAIN")
        assert made.receive(SASL_HANDSHAKE, 1)[1].error_code.name == "none"
        made.send(SASL_AUTHENTICATE, 2, 1, auth_bytes=f"\0app\0{token}".encode())
        assert made.receive(SASL_AUTHENTICATE, 2)[1].error_code.name == "none"
        return made

    return dial


@pytest.mark.parametrize("kind", ["clear text", "TLS"])
def test_idle_connections_cost_next_to_nothing(kind: str, seaweed: SeaweedProcess, tmp_path: Path) -> None:
    with cluster_of(kind, tmp_path, seaweed) as cluster:
        (name,) = cluster.pids()
        address = eventually(lambda: cluster.kafka_address(name), what="the listener's address")
        assert address is not None
        dial = dialer(cluster, address)
        broker = psutil.Process(cluster.pids()[name])
        used(dial)  # so that what is loaded once is loaded
        base_share = share(broker)
        before = broker.memory_info().rss
        began = time.monotonic()
        connections = [used(dial) for _ in range(CONNECTIONS)]
        opened = time.monotonic() - began
        each = (broker.memory_info().rss - before) / CONNECTIONS
        idle = share(broker)
        shares = f"{idle:.2%} of a core ({base_share:.2%} without them)"
        print(f"\n{kind}: {each:,.0f} bytes each, {shares}, opened in {opened:.1f} s")
        for it in connections:  # each is served as before
            check(it)
        again = (broker.memory_info().rss - before) / CONNECTIONS
        print(f"  after another request of each: {again:,.0f} bytes each")
        assert idle < MAX_SHARE
        assert each < MAX_BYTES, f"{each:,.0f} bytes"
        for it in connections:
            it.socket.close()


def used(dial: Callable[[], KafkaSocket]) -> KafkaSocket:
    made = dial()
    check(made)
    return made


def check(connection: KafkaSocket) -> None:
    connection.send(API_VERSIONS, 3, 1, client_software_name="a", client_software_version="1")
    assert connection.receive(API_VERSIONS, 3)[1].api_keys


def share(process: psutil.Process) -> float:
    """The process's share of a core."""
    before, began = process.cpu_times(), time.monotonic()
    time.sleep(SECONDS)
    after = process.cpu_times()
    return (after.user + after.system - before.user - before.system) / (time.monotonic() - began)
