"""Strangers at the ports of the brokers, while a producer that is connected publishes at a fixed rate."""

from __future__ import annotations

import sys

from benchmarks.harness import child_process
from benchmarks.harness.child_process import LoadProcess
from benchmarks.harness.cluster import BenchmarkCluster
from benchmarks.harness.meter import Meter, memory_mb
from benchmarks.model import Measurement, Scale, latencies

IDLE_PER_BROKER = 2_000
HANDSHAKES_PER_SECOND = 20


def strangers(cluster: BenchmarkCluster, scale: Scale) -> Measurement:
    """The latencies with strangers, and p99 as a multiple of that without them."""
    topic = cluster.topic(1)
    words = ("--size", 1000, "--rate", 500, "--linger", 0, "--count", scale.of(30_000, 6_000))
    alone = child_process.ours("latency", cluster.leader, topic, *words).result()
    pids = cluster.broker_pids().values()
    before = {pid: memory_mb(pid, "RssAnon") for pid in pids}
    addresses = [broker.address for broker in cluster.client.admin().brokers()]
    load = ("--idle", str(scale.of(IDLE_PER_BROKER, 200)), "--rate", str(HANDSHAKES_PER_SECOND))
    crowd = LoadProcess([sys.executable, "-m", "benchmarks.loads.strangers", *addresses, *load])
    crowd.started(120)
    with Meter(cluster.groups) as meter:
        producer = child_process.ours("latency", cluster.leader, topic, *words)
        result = producer.result()
    growth = max(memory_mb(pid, "RssAnon") - before[pid] for pid in pids)
    crowd.terminate()
    counts = crowd.result()
    row = meter.row(producer.cpu + crowd.cpu)
    figures = latencies(result, row) | {
        "p99_times": result["p99_ms"] / alone["p99_ms"],
        "growth_mb": growth,
        "admitted": float(counts["admitted"]),
    }
    return Measurement(figures, row, {"alone_p99_ms": alone["p99_ms"], "alone_p50_ms": alone["p50_ms"], **counts})
