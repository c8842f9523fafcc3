"""The peers' version of each case: the same number of the same events, acked by both replicas."""

from __future__ import annotations

import re
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.harness.child_process import LoadProcess
from benchmarks.harness.cluster import wait_for
from benchmarks.harness.meter import Meter
from benchmarks.loads import flight_relay
from benchmarks.loads.rate import longest_gaps
from benchmarks.model import Measurement, Scale, latencies, throughput
from benchmarks.peers.kafka import Kafka
from benchmarks.peers.kafka_clients import KafkaClients
from benchmarks.peers.weed_queue import WeedQueue

MB = 10**6
# Seconds after which a load on a peer counts as failed, because some hang for ever.
TIMEOUT_SECONDS = 150.0
Queue = KafkaClients | WeedQueue


def _relay(start: Callable[[str], LoadProcess]) -> tuple[dict[str, Any], dict[str, float]]:
    """What a load on a relay reports, and what it took."""
    with flight_relay.relay() as (address, pids), Meter(lambda: {"broker": pids}) as meter:
        load = start(address)
        result = load.result()
    return result, meter.row(load.cpu)


def relay_1k(_: None, scale: Scale) -> Measurement:
    """Batches and window are the defaults of our producer."""
    total = scale.of(2000 * MB, 300 * MB)
    result, row = _relay(lambda address: flight_relay.pusher(address, 1000, total, 1 << 20, 32 << 20))
    return Measurement(throughput(result, row), row)


def relay_latency(_: None, scale: Scale) -> Measurement:
    """Each event is a separate batch, and as many are under way as come: the relay gathers nothing."""
    count = scale.of(30_000, 6_000)
    result, row = _relay(lambda address: flight_relay.sender(address, 1000, 1000, count))
    return Measurement(latencies(result, row), row)


# ---- one record at a time through the Python client


def _load(queue: Queue, topic: str, what: str, *words: object) -> tuple[dict[str, Any], dict[str, float]]:
    """What a load on that topic reports, and what it took; the topic is dropped."""
    with Meter(queue.groups) as meter:
        load = queue.load(what, topic, *words)
        result = load.result(TIMEOUT_SECONDS)
    queue.drop(topic)
    return result, meter.row(load.cpu)


def _produce(queue: Queue, size: int, count: int, *words: object) -> Measurement:
    events = queue.folder / f"events-{size}.txt"
    result, row = _load(queue, queue.topic(), "produce", "--payload", events, "--count", count, *words)
    return Measurement(throughput(result, row), row)


def kafka_write_1k(kafka: KafkaClients, scale: Scale) -> Measurement:
    return _produce(kafka, 1000, scale.of(2_000_000, 300_000))


def kafka_write_100b(kafka: KafkaClients, scale: Scale) -> Measurement:
    return _produce(kafka, 100, scale.of(5_000_000, 1_000_000))


def kafka_send_100b(kafka: KafkaClients, scale: Scale) -> Measurement:
    return _produce(kafka, 100, scale.of(3_000_000, 500_000), "--callback")


def weed_write_1k(queue: WeedQueue, scale: Scale) -> Measurement:
    return _produce(queue, 1000, scale.of(40_000, 10_000))


def _latency(queue: Queue, count: int) -> Measurement:
    events = queue.folder / "events-1000.txt"
    words = ("--payload", events, "--count", count, "--rate", 1000, "--linger-ms", 0)
    result, row = _load(queue, queue.topic(), "latency", *words)
    return Measurement(latencies(result, row), row)


def kafka_latency(kafka: KafkaClients, scale: Scale) -> Measurement:
    return _latency(kafka, scale.of(30_000, 6_000))


def weed_latency(queue: WeedQueue, scale: Scale) -> Measurement:
    return _latency(queue, scale.of(30_000, 6_000))


# ---- reading


def _read(queue: Queue, size: int, count: int) -> Measurement:
    topic = queue.topic()
    if isinstance(queue, KafkaClients):
        queue.produce_java(topic, size, count).wait()
        queue.wait_written(topic, count)
    else:
        queue.load("produce", topic, "--payload", queue.folder / f"events-{size}.txt", "--count", count).result()
    result, row = _load(queue, topic, "consume", "--count", count)
    return Measurement(throughput(result, row), row)


def kafka_read_1k(kafka: KafkaClients, scale: Scale) -> Measurement:
    return _read(kafka, 1000, scale.of(1_000_000, 200_000))


def kafka_read_100b(kafka: KafkaClients, scale: Scale) -> Measurement:
    return _read(kafka, 100, scale.of(3_000_000, 600_000))


def weed_read_1k(queue: WeedQueue, scale: Scale) -> Measurement:
    return _read(queue, 1000, scale.of(20_000, 5_000))


# ---- Kafka's own load tools, in Java


def _java_write(kafka: KafkaClients, size: int, count: int) -> Measurement:
    topic = kafka.topic()
    with Meter(kafka.groups) as meter:
        load = kafka.produce_java(topic, size, count)
        text = load.wait()
    kafka.drop(topic)
    match = re.search(r"records sent, ([\d.]+) records/sec", text.strip().splitlines()[-1])
    assert match is not None, text
    row = meter.row(load.cpu)
    rate = float(match[1])
    return Measurement(throughput({"rows": count, "seconds": count / rate, "bytes": count * size}, row), row)


def java_write_1k(kafka: KafkaClients, scale: Scale) -> Measurement:
    return _java_write(kafka, 1000, scale.of(2_000_000, 300_000))


def java_write_100b(kafka: KafkaClients, scale: Scale) -> Measurement:
    return _java_write(kafka, 100, scale.of(10_000_000, 1_500_000))


def _java_read(kafka: KafkaClients, size: int, count: int) -> Measurement:
    topic = kafka.topic()
    kafka.produce_java(topic, size, count).wait()
    kafka.wait_written(topic, count)
    words = ("--bootstrap-server", kafka.bootstrap, "--topic", topic, "--num-records", count)
    with Meter(kafka.groups) as meter:
        load: LoadProcess = kafka.perf("ConsumerPerformance", *words)
        text = load.wait()
    kafka.drop(topic)
    fields = text.strip().splitlines()[-1].split(", ")
    rows, rate = float(fields[4]), float(fields[9])  # fetch.nMsg.sec: without the time to join
    row = meter.row(load.cpu)
    return Measurement(throughput({"rows": rows, "seconds": rows / rate, "bytes": rows * size}, row), row)


def java_read_1k(kafka: KafkaClients, scale: Scale) -> Measurement:
    return _java_read(kafka, 1000, scale.of(1_000_000, 200_000))


def java_read_100b(kafka: KafkaClients, scale: Scale) -> Measurement:
    return _java_read(kafka, 100, scale.of(5_000_000, 1_000_000))


# ---- memory and faults


def kafka_idle(kafka: Kafka, scale: Scale) -> Measurement:
    """Right after its start, before any load."""
    return Measurement(dict(kafka.idle))


def kafka_failover(kafka: Kafka, scale: Scale) -> Measurement:
    """Three separate nodes, three replicas of which two must have a record, so that any one may be killed."""
    rate, kills, every = 5_000, scale.of(3, 1), 25.0
    count = int(rate * every * (kills + 1))
    with Kafka(kafka.folder.with_name("kafka-failover"), brokers=3) as own:
        topic = own.topic(partitions=1, replicas=3)
        with tempfile.TemporaryDirectory() as folder, Meter(own.groups) as meter:
            times = Path(folder) / "acks.txt"
            words = ("--count", count, "--rate", rate, "--partitions", 1, "--times", times)
            load = own.load("steady", topic, *words)
            load.started()
            killed = []
            for _ in range(kills):
                time.sleep(every / 2)
                node = int(own.load("leader", topic).result()["leader"])
                killed.append(own.kill(node))
                time.sleep(every / 2)
                own.start(node)
                wait_for("all in sync", lambda: _in_sync(own, topic) == 3, 90)
            result = load.result()
            acks: dict[str, list[float]] = defaultdict(list)
            for line in times.read_text().splitlines():
                at, partition = line.split()
                acks[partition].append(float(at))
        found: dict[str, Any] = own.load("numbers", topic, "--count", count, "--partitions", 1).result()
    stalls = [max(gaps) for gaps in zip(*(longest_gaps(a, killed) for a in acks.values()), strict=True)]
    figures = {
        "stall_max_s": max(stalls),
        "stall_p50_s": median(stalls),
        "lost": float(max(0, found["missing"] - (count - result["acked"]))),
        "doubled": float(found["doubled"]),
    }
    return Measurement(figures, meter.row(load.cpu), {"stalls_s": [round(s, 2) for s in stalls], **result, **found})


def _in_sync(kafka: Kafka, topic: str) -> int:
    return int(kafka.load("leader", topic).result()["in_sync"])
