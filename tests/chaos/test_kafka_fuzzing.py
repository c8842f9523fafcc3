"""A million malformed inputs to what serves Kafka clients: requests, record batches, whole connections; and a minute of
them to a broker's process, over sockets.

`make test` tries some thousands (tests/property/test_kafka_fuzzing.py). ``--chaos-inputs N`` tries more or fewer,
``--chaos-first SEED`` others. A failure prints its input.
"""

from __future__ import annotations

import math
import socket
import threading
import time
import uuid
from collections import Counter
from contextlib import suppress
from pathlib import Path

import confluent_kafka
import psutil
import pytest

from integration.kafka.clients import bootstrap, producer_of
from smq_broker.kafka.protocol.api_versions import with_api_versions
from smq_core.model.addresses import split_address
from smq_storage.object_store.store import open_store
from smq_storage.process.seaweedfs import SeaweedProcess
from support.fuzzing.kafka_campaign import PARTS, attack
from support.fuzzing.kafka_listener import WORDS
from support.fuzzing.kafka_requests import RequestMaker
from support.fuzzing.mutator import Mutator
from support.fuzzing.process_checks import ALLOWED_BYTES, check_logs
from support.fuzzing.targets import MAX_GROWTH_BYTES, Outcome
from support.in_memory.kafka_apis import apis_of_one_topic
from support.processes.local_cluster import LocalCluster
from support.sim.histories.parallel import workers
from support.waiting import eventually

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

SHARES = {"requests": 0.7, "records": 0.2, "connections": 0.1}
SLICES = 8
ATTACK_SECONDS = 60.0
ATTACKERS = 4
# DeleteTopics, AlterConfigs, IncrementalAlterConfigs: what everybody may do to the topic in an open release.
CHANGES_OF_TOPICS = {20, 33, 44}


@pytest.mark.timeout(0)
def test_every_input_is_answered_or_refused(request: pytest.FixtureRequest) -> None:
    inputs = int(request.config.getoption("--chaos-inputs", 1_000_000))
    first = int(request.config.getoption("--chaos-first", 1_000_000))
    slices = [(part, first + n, math.ceil(inputs * SHARES[part] / SLICES)) for part in PARTS for n in range(SLICES)]
    totals: dict[str, Outcome] = {}
    with workers() as pool:
        for outcomes, growth in pool.map(attack, *zip(*slices, strict=True)):
            assert growth < MAX_GROWTH_BYTES, f"the memory of the process grew by {growth >> 20} MiB"
            for it in outcomes:
                total = totals.setdefault(it.target, Outcome(it.target))
                total.inputs += it.inputs
                total.accepted += it.accepted
                total.slowest_seconds = max(total.slowest_seconds, it.slowest_seconds)
                total.failures += it.failures
    print("\n" + "\n".join(str(it) for it in totals.values()))
    assert not [str(it) for it in totals.values() if it.failures]
    assert sum(it.inputs for it in totals.values()) >= inputs


@pytest.mark.timeout(0)
def test_an_attack_leaves_brokers_as_they_were(
    request: pytest.FixtureRequest, seaweed: SeaweedProcess, tmp_path: Path
) -> None:
    seed = request.config.getoption("--chaos-seed") or time.time_ns() // 1_000_000
    print(f"\n--chaos-seed {seed}")
    arguments = ("--broker-memory", "1Gi", "--broker-arg=--kafka=127.0.0.1:0")
    with LocalCluster(tmp_path, seaweed.settings("attacked"), brokers=2, arguments=arguments) as cluster:
        cluster.create("events", partitioner="Kafka", partitions=4, segments={"max": 4}, flush={"interval": "200ms"})
        ports = [str(cluster.kafka_address(name)) for name in cluster.pids()]
        attack_ports(ports, 1, 1.0)
        before = {pid: psutil.Process(pid).memory_info().rss for pid in cluster.pids().values()}
        sent = attack_ports(ports, seed, ATTACK_SECONDS)
        grown = {pid: psutil.Process(pid).memory_info().rss - rss for pid, rss in before.items()}
        print(f"sent {dict(sent)}; grown by MiB: {[it >> 20 for it in grown.values()]}")
        assert max(grown.values()) < ALLOWED_BYTES
        assert set(before) == set(cluster.pids().values()), "a broker was replaced"
        producer = producer_of(cluster)
        producer.produce("events", b"after", partition=0)
        assert producer.flush(60) == 0
        check_is_read(bootstrap(cluster), b"after")
        check_logs(cluster, ATTACK_SECONDS)
        for path in (cluster.folder / "logs").glob("*.log"):
            assert '"failed_request"' not in path.read_text()


def check_is_read(bootstrap: str, value: bytes) -> None:
    """All that was accepted can be read, up to this message."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    consumer.assign([confluent_kafka.TopicPartition("events", 0, confluent_kafka.OFFSET_BEGINNING)])
    expected = 0

    def read() -> bool:
        nonlocal expected
        for it in consumer.consume(1000, timeout=0.5):
            assert it.error() is None and it.offset() == expected, (it.error(), it.offset(), expected)
            expected += 1
            if it.value() == value:
                return True
        return False

    eventually(read, what="the last message")
    consumer.close()


def attack_ports(ports: list[str], seed: int, seconds: float) -> Counter[str]:
    """Requests, valid and malformed, one connection after the other. How many were sent, and answered."""
    sent: Counter[str] = Counter()
    until = time.monotonic() + seconds
    failures: list[BaseException] = []

    def run(number: int) -> None:
        known = with_api_versions(apis_of_one_topic(open_store("memory://")))
        apis = {key: api for key, api in known.items() if key not in CHANGES_OF_TOPICS}
        mutator, maker = Mutator(seed * 100 + number), RequestMaker(apis, WORDS, [uuid.UUID(int=1)])
        try:
            while time.monotonic() < until:
                frames = [maker.frame(mutator) for _ in range(mutator.random.choice((1, 5, 20)))]
                data = b"".join(it if mutator.random.random() < 0.5 else mutator.data([it]) for it in frames)
                sent["connections"] += 1
                sent["requests"] += len(frames)
                with suppress(OSError), socket.create_connection(split_address(mutator.random.choice(ports))) as peer:
                    peer.settimeout(0.05)
                    peer.sendall(data)
                    while answer := peer.recv(1 << 16):
                        sent["answered bytes"] += len(answer)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(ATTACKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    return sent
