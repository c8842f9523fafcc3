"""A cluster whose processes have IPv6 addresses only."""

from pathlib import Path

import pytest

import smq
from support.processes.local_cluster import LocalCluster
from support.processes.seaweed import Seaweed, prefix, seaweed
from support.waiting import eventually

__all__ = ["prefix", "seaweed"]
pytestmark = pytest.mark.integration


@pytest.mark.slow
def test_leader_brokers_clients_and_relay_use_ipv6(tmp_path: Path, seaweed: Seaweed, prefix: str) -> None:
    arguments = ("--http", "[::1]:0", *(f"--broker-arg=--{name}=[::1]:0" for name in ("listen", "http", "relay")))
    cluster = LocalCluster(tmp_path, seaweed.settings(prefix), brokers=2, arguments=arguments, host="[::1]")
    try:
        cluster.start()
        cluster.create("t")
        with cluster.connect() as client:
            assert {broker.address.rpartition(":")[0] for broker in client.admin().brokers()} == {"[::1]"}
            with client.producer("t") as producer:
                assert producer.send(b"direct", key=b"k").result(60)
        relay = eventually(lambda: cluster.relay_address("broker-1"), what="a broker relays")
        assert relay.startswith("[::1]:")
        with smq.connect(via=relay, timeout=60) as client:
            with client.producer("t") as producer:
                assert producer.send(b"through the relay", key=b"k").result(60)
            with client.consumer("t") as consumer:
                values: list[bytes] = []
                while len(values) < 2:
                    values += consumer.poll(60).table["value"].to_pylist()
        assert values == [b"direct", b"through the relay"]
    finally:
        cluster.stop()
