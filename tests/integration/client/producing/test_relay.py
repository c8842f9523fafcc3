"""A client outside of the cluster sends all its calls through the relay of one broker."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

import smq
from smq_storage.process.ports import free_port
from smq_storage.process.seaweedfs import SeaweedProcess
from support.processes.local_cluster import LocalCluster
from support.waiting import HANG_GUARD, eventually

OUTSIDE = """
import json, os, re, sys
from pathlib import Path
import smq

def connected_to():
    "The remote TCP ports of this process's connections."
    inodes = set()
    for fd in Path("/proc/self/fd").iterdir():
        try:
            inodes.update(re.findall(r"socket:.(\\d+)", os.readlink(fd)))
        except OSError:
            continue
    lines = [line.split() for kind in ("tcp", "tcp6") for line in open(f"/proc/self/net/{kind}").readlines()[1:]]
    return {int(parts[2].rpartition(":")[2], 16) for parts in lines if parts[3] == "01" and parts[9] in inodes}

topic, relay = sys.argv[1:]
with smq.connect(via=relay) as client:
    with client.producer(topic) as producer:
        receipts = [producer.send(b"%d" % n, key=b"%d" % (n % 7)) for n in range(500)]
        producer.flush()
        ports = connected_to()
    [segment] = client.admin().segments(topic)
    client.admin().split(topic, segment.name)
    with client.producer(topic) as producer:
        producer.send(b"500", key=b"0").result()
    values = []
    with client.consumer(topic, group="outside", start="earliest") as consumer:
        for batch in consumer:
            values += [int(v) for v in batch.table["value"].to_pylist()]
            consumer.commit()
            ports |= connected_to()
            if len(values) >= 501:
                break
print(json.dumps({"values": sorted(values), "ports": sorted(ports)}))
"""


@pytest.fixture(scope="module")
def relay(seaweed: SeaweedProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalCluster, str]]:
    """A cluster of two brokers that relay, and the address of one relay."""
    folder = tmp_path_factory.mktemp("relay")
    arguments = ("--broker-arg=--relay=127.0.0.1:0",)
    with LocalCluster(folder, seaweed.settings(f"relay-{folder.name}"), brokers=2, arguments=arguments) as cluster:
        yield cluster, eventually(lambda: cluster.relay_address("broker-1"), what="broker-1 relays")


def test_everything_goes_through_the_relay(relay: tuple[LocalCluster, str]) -> None:
    cluster, address = relay
    cluster.create("outside", flush={"interval": "1s"})
    done = subprocess.run(
        [sys.executable, "-c", OUTSIDE, "outside", address], capture_output=True, text=True, timeout=HANG_GUARD
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert found["values"] == list(range(501))
    assert found["ports"] == [int(address.rpartition(":")[2])]


def test_a_foreign_address_is_refused(relay: tuple[LocalCluster, str]) -> None:
    other = free_port()
    connection = http.client.HTTPConnection(relay[1], timeout=HANG_GUARD)
    connection.request("CONNECT", f"127.0.0.1:{other}")
    answer = connection.getresponse()
    assert answer.status == 403
    assert f"127.0.0.1:{other} is no broker, leader or filer of this cluster" in answer.read().decode()


def test_a_browser_learns_what_this_port_is(relay: tuple[LocalCluster, str]) -> None:
    connection = http.client.HTTPConnection(relay[1], timeout=HANG_GUARD)
    connection.request("GET", "/")
    answer = connection.getresponse()
    assert answer.status == 403
    assert "smq --via" in answer.read().decode()


@pytest.mark.slow
def test_a_leader_that_was_started_again_is_found(relay: tuple[LocalCluster, str]) -> None:
    cluster, address = relay
    with smq.connect(via=address) as client:
        assert client.admin().brokers()
        cluster.kill_leader()
        cluster.start()
        assert len(client.admin().brokers()) == 2
