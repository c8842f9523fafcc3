"""The throughput cases of SeaweedMQ. peers/cases.py has the same cases for the peers."""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.cases import elastic, faults, kafka_listener, references, schema, small_messages, strangers
from benchmarks.harness import child_process
from benchmarks.harness.cluster import BenchmarkCluster, ClusterSpec
from benchmarks.harness.meter import Meter, memory_mb
from benchmarks.loads import typed_rows
from benchmarks.model import Case, Figure, Measurement, Scale, latencies, throughput
from benchmarks.peers import cases as peers

MB = 10**6
# As many as brokers, as the peers have partitions: each broker leads one and follows the other.
WRITE_SEGMENTS = 2
TAIL_SEGMENTS = 16
# Per segment: below what makes a broker write the tail out.
TAIL_MB = 24

PER_CPU = (
    Figure("per_broker_cpu_s", "records per broker CPU s"),
    Figure("per_server_cpu_s", "with SeaweedFS and leader"),
)


def _load(
    cluster: BenchmarkCluster, what: str, topic: str, *words: object
) -> tuple[dict[str, object], dict[str, float]]:
    with Meter(cluster.groups) as meter:
        load = child_process.ours(what, cluster.leader, topic, *words)
        result = load.result()
    return result, meter.row(load.cpu)


def write_1k(cluster: BenchmarkCluster, scale: Scale) -> Measurement:
    topic = cluster.topic(WRITE_SEGMENTS)
    result, meter = _load(cluster, "write", topic, "--size", 1000, "--bytes", scale.of(2000 * MB, 300 * MB))
    return Measurement(throughput(result, meter), meter)


def write_100b(cluster: BenchmarkCluster, scale: Scale) -> Measurement:
    topic = cluster.topic(WRITE_SEGMENTS)
    result, meter = _load(cluster, "write", topic, "--size", 100, "--bytes", scale.of(1000 * MB, 150 * MB))
    return Measurement(throughput(result, meter), meter)


def sustained_1k(cluster: BenchmarkCluster, scale: Scale) -> Measurement:
    """As fast as it is taken, then until the filer has all of it: nothing is left to flush afterwards."""
    topic = cluster.topic(WRITE_SEGMENTS, flush_interval="1s")
    with Meter(cluster.groups) as meter:
        start = time.monotonic()
        load = child_process.ours("write", cluster.leader, topic, "--size", 1000, "--seconds", scale.of(60, 8))
        result = load.result()
        ended = time.monotonic()
        cluster.wait_flushed(topic, int(result["written"]))
        rest = time.monotonic() - ended
    row = meter.row(load.cpu)
    figures = throughput(result, row)
    figures["flushed_mb_s"] = result["bytes"] / (result["seconds"] + rest) / 1e6
    return Measurement(figures, row, {"flush_after_s": round(rest, 2), "whole_s": round(ended + rest - start, 2)})


def send_100b(cluster: BenchmarkCluster, scale: Scale) -> Measurement:
    topic = cluster.topic(WRITE_SEGMENTS)
    result, meter = _load(cluster, "send", topic, "--size", 100, "--count", scale.of(3_000_000, 500_000))
    return Measurement(throughput(result, meter), meter)


def send_typed(columns: int) -> Callable[[BenchmarkCluster, Scale], Measurement]:
    def measure(cluster: BenchmarkCluster, scale: Scale) -> Measurement:
        topic = cluster.topic(WRITE_SEGMENTS, columns=typed_rows.spec(columns))
        count = scale.of(24_000_000, 4_000_000) // columns
        result, meter = _load(cluster, "send_typed", topic, "--size", columns, "--count", count)
        return Measurement(throughput(result, meter), meter)

    return measure


def send_many_100b(cluster: BenchmarkCluster, scale: Scale) -> Measurement:
    topic = cluster.topic(WRITE_SEGMENTS)
    result, meter = _load(cluster, "send_many", topic, "--size", 100, "--count", scale.of(6_000_000, 1_000_000))
    return Measurement(throughput(result, meter), meter)


def latency(cluster: BenchmarkCluster, scale: Scale) -> Measurement:
    topic = cluster.topic(1)
    words = ("--size", 1000, "--rate", 1000, "--linger", 0, "--count", scale.of(30_000, 6_000))
    result, meter = _load(cluster, "latency", topic, *words)
    return Measurement(latencies(result, meter), meter)


def steady(cluster: BenchmarkCluster, scale: Scale) -> Measurement:
    topic = cluster.topic(4)
    words = ("--size", 1000, "--rate", 5000, "--keys", 64, "--count", scale.of(100_000, 30_000))
    result, meter = _load(cluster, "latency", topic, *words)
    return Measurement(latencies(result, meter), meter)


def _tail(size: int, cluster: BenchmarkCluster, scale: Scale) -> Measurement:
    segments = scale.of(TAIL_SEGMENTS, 4)
    topic = cluster.topic(segments, flush_bytes="1Gi", flush_interval="1h")
    written = child_process.ours(
        "write", cluster.leader, topic, "--size", size, "--bytes", segments * TAIL_MB * MB
    ).result()
    result, meter = _load(cluster, "consume", topic, "--count", written["written"])
    unflushed = cluster.unflushed(topic)
    cluster.client.admin().delete(topic)  # or the next run finds memory filled with it, and its own in the filer
    notes = {"in_tail": unflushed, "of": written["written"], "first_batch_s": result["first_batch_s"]}
    return Measurement(throughput(result, meter), meter, notes)


def tail_1k(cluster: BenchmarkCluster, scale: Scale) -> Measurement:
    return _tail(1000, cluster, scale)


def tail_100b(cluster: BenchmarkCluster, scale: Scale) -> Measurement:
    return _tail(100, cluster, scale)


def filer_1k(cluster: BenchmarkCluster, scale: Scale) -> Measurement:
    topic = cluster.topic(WRITE_SEGMENTS, flush_interval="1s")
    wanted = scale.of(1000 * MB, 200 * MB)
    written = child_process.ours("write", cluster.leader, topic, "--size", 1000, "--bytes", wanted).result()
    cluster.wait_flushed(topic, written["written"])
    result, meter = _load(cluster, "consume", topic, "--count", written["written"])
    return Measurement(throughput(result, meter), meter, {"first_batch_s": result["first_batch_s"]})


def _rest(cluster: BenchmarkCluster, seconds: float) -> Measurement:
    """Memory and CPU of brokers that have nothing to do."""
    with Meter(cluster.groups) as meter:
        time.sleep(seconds)
    pids = list(cluster.broker_pids().values())
    row = meter.row(0.0)
    figures = {
        "rss_mb": max(memory_mb(pid) for pid in pids),
        "own_mb": max(memory_mb(pid, "RssAnon") for pid in pids),
        "cores": row["broker_cpu_s"] / row["wall_s"] / len(pids),
    }
    return Measurement(figures, row)


def memory_idle(cluster: BenchmarkCluster, scale: Scale) -> Measurement:
    return _rest(cluster, scale.of(15, 5))


def memory_segments(cluster: BenchmarkCluster, scale: Scale) -> Measurement:
    start = time.monotonic()
    cluster.topic(200)
    opened = time.monotonic() - start
    row = _rest(cluster, scale.of(30, 10))
    row.notes["opened_in_s"] = round(opened, 2)
    return row


REST = (Figure("own_mb", "of it private, MB", higher=False), Figure("cores", "cores at rest, each", higher=False))

CASES = (
    Case(
        "write-1k",
        "1 KB, whole tables, one producer, 2 replicas: a burst",
        (Figure("mb_s", "MB/s acked", 200.0, floor=("relay", 0.5)), *PER_CPU),
        write_1k,
        ClusterSpec(memory="4Gi"),
        {
            "relay": peers.relay_1k,
            "kafka": peers.kafka_write_1k,
            "kafka java": peers.java_write_1k,
            "weed mq": peers.weed_write_1k,
        },
    ),
    Case(
        "sustained-1k",
        "1 KB, whole tables, as fast as taken until all is in SeaweedFS",
        (Figure("flushed_mb_s", "MB/s in SeaweedFS", 100.0), Figure("mb_s", "MB/s acked"), *PER_CPU),
        sustained_1k,
    ),
    Case(
        "write-100b",
        "100 B, whole tables, one producer, 2 replicas",
        (Figure("per_s", "messages/s acked", 1e6), *PER_CPU),
        write_100b,
        ClusterSpec(memory="4Gi"),
        {"kafka": peers.kafka_write_100b, "kafka java": peers.java_write_100b},
    ),
    Case(
        "send-100b",
        "100 B, send() one by one, a receipt for each",
        (Figure("per_s", "messages/s with receipts", 300e3), *PER_CPU),
        send_100b,
        ClusterSpec(memory="4Gi"),
        {"kafka": peers.kafka_send_100b},
    ),
    Case(
        "send-17-columns",
        "rows of 17 typed columns, send() one by one, a receipt for each",
        (Figure("per_s", "messages/s with receipts", 100e3), *PER_CPU),
        send_typed(17),
        ClusterSpec(memory="4Gi"),
    ),
    Case(
        "send-60-columns",
        "rows of 60 typed columns, send() one by one, a receipt for each",
        (Figure("per_s", "messages/s with receipts", 30e3), *PER_CPU),
        send_typed(60),
        ClusterSpec(memory="4Gi"),
    ),
    Case(
        "send-many-100b",
        "100 B, send_many() by the thousand, a receipt for each",
        (Figure("per_s", "messages/s with receipts"), *PER_CPU),
        send_many_100b,
        ClusterSpec(memory="4Gi"),
    ),
    Case(
        "tail-1k",
        "1 KB, one consumer, from the brokers' memory",
        (Figure("mb_s", "MB/s", 400.0), *PER_CPU),
        tail_1k,
        ClusterSpec(memory="4Gi"),
        {"kafka": peers.kafka_read_1k, "kafka java": peers.java_read_1k, "weed mq": peers.weed_read_1k},
    ),
    Case(
        "filer-1k",
        "1 KB, one consumer, from SeaweedFS",
        (Figure("mb_s", "MB/s", 300.0), *PER_CPU),
        filer_1k,
        peers={"kafka": peers.kafka_read_1k, "kafka java": peers.java_read_1k},
    ),
    Case(
        "tail-100b",
        "100 B, one consumer by batch, from the brokers' memory",
        (Figure("per_s", "messages/s", 2e6), *PER_CPU),
        tail_100b,
        ClusterSpec(memory="4Gi"),
        {"kafka": peers.kafka_read_100b, "kafka java": peers.java_read_100b},
    ),
    Case(
        "latency",
        "1 KB at 1,000/s without lingering: from send() to its ack",
        (
            Figure("p50_ms", "p50 ms", 3.0, higher=False),
            Figure("p99_ms", "p99 ms", 10.0, higher=False),
            Figure("p999_ms", "p99.9 ms", higher=False),
            *PER_CPU,
        ),
        latency,
        peers={"relay": peers.relay_latency, "kafka": peers.kafka_latency, "weed mq": peers.weed_latency},
    ),
    Case(
        "steady-1k",
        "1 KB at 5,000/s with the usual lingering to four segments: from send() to its ack",
        (
            Figure("p50_ms", "p50 ms", higher=False),
            Figure("p99_ms", "p99 ms", higher=False),
            *PER_CPU,
        ),
        steady,
        ClusterSpec(brokers=3),
    ),
    Case(
        "strangers",
        "1 KB at 500/s to a secure release, 20 refused handshakes/s and 2,000 silent connections at each broker",
        (
            Figure("p99_times", "p99, times that without them", 2.0, higher=False),
            Figure("p50_ms", "p50 ms", higher=False),
            Figure("p99_ms", "p99 ms", higher=False),
            Figure("growth_mb", "memory of a broker, MB more", 100.0, higher=False),
            Figure("admitted", "strangers admitted", 0.0, higher=False),
        ),
        strangers.strangers,
        ClusterSpec(secure=True),
    ),
    *small_messages.CASES,
    *elastic.CASES,
    *schema.CASES,
    *references.CASES,
    Case(
        "memory-idle",
        "a broker without segments",
        (Figure("rss_mb", "RSS, MB", 120.0, higher=False), *REST),
        memory_idle,
        peers={"kafka": peers.kafka_idle},
        once=True,
    ),
    Case(
        "memory-200",
        "200 open segments on two brokers, at rest",
        (Figure("rss_mb", "RSS, MB", 300.0, higher=False), *REST),
        memory_segments,
        once=True,
    ),
    *kafka_listener.CASES,
    *faults.CASES,
)
