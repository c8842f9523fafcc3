"""Small messages from many producers, to many consumers, and more of them than there is capacity for."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness.child_process import LoadProcess
from benchmarks.harness.cluster import BenchmarkCluster
from benchmarks.harness.meter import Meter
from benchmarks.loads.rate import quantiles
from benchmarks.model import Case, Figure, Measurement, Scale
from benchmarks.peers.small_messages import kafka_fan_in

SEGMENTS = 2


def many(what: str, cluster: BenchmarkCluster, topic: str, *words: object) -> LoadProcess:
    argv = [sys.executable, "-m", "benchmarks.loads.many_clients", what, cluster.leader, topic]
    return LoadProcess([*argv, *map(str, words)])


def fan_in_figures(rows: list[Mapping[str, Any]], meter: Mapping[str, float]) -> dict[str, float]:
    """Latencies of all messages of all processes, and CPU in milliseconds per message."""
    messages = sum(float(row["rows"]) for row in rows)
    found = quantiles([it / 1e3 for row in rows for it in row["taken_ms"]])
    found["client_cpu_ms"] = sum(float(row["cpu_s"]) for row in rows) / messages * 1e3
    found["broker_cpu_ms"] = meter["broker_cpu_s"] / messages * 1e3
    found["per_s"] = messages / max(float(row["seconds"]) for row in rows)
    found["threads"] = max(float(row.get("threads", 0)) for row in rows)
    found["failed"] = sum(float(row["failed"]) for row in rows)
    return found


def send_from_many(
    cluster: BenchmarkCluster, topic: str, producers: int, processes: int, rate: float, linger: float, seconds: float
) -> Measurement:
    """``rate`` is that of all producers together, in messages a second; ``seconds`` begin after a warm-up."""
    words: tuple[Any, ...] = ("--producers", producers // processes, "--rate", rate / processes, "--linger", linger)
    with tempfile.TemporaryDirectory() as folder:
        go = Path(folder) / "go"
        words += ("--count", int(rate * seconds / processes), "--go", go)
        loads = [many("fan_in", cluster, topic, *words) for _ in range(processes)]
        for load in loads:
            load.started()
        with Meter(cluster.groups) as meter:
            go.touch()
            rows = [load.result() for load in loads]
    row = meter.row(sum(load.cpu for load in loads))
    return Measurement(fan_in_figures(rows, row), row)


def fan_in(
    producers: int, processes: int, rate: float, linger: float, cluster: BenchmarkCluster, scale: Scale
) -> Measurement:
    return send_from_many(cluster, cluster.topic(SEGMENTS), producers, processes, rate, linger, scale.of(20, 8))


def overload(cluster: BenchmarkCluster, scale: Scale) -> Measurement:
    """Twice the highest rate that has a p99 of at most 100 ms; rates rise by half each time."""
    topic = cluster.topic(SEGMENTS)
    before, leader = _open_segments(cluster, topic), cluster.groups()["leader"]
    rate, highest, best = 250.0, 0.0, 0.0
    while rate < 200_000:
        found = send_from_many(cluster, topic, 100, 8, rate, 0.005, scale.of(10, 4)).figures
        best = max(best, found["per_s"])
        if found["p99_ms"] > 100:
            break
        highest = rate
        rate *= 1.5
    highest = highest or rate / 2
    over = send_from_many(cluster, topic, 100, 8, 2 * highest, 0.005, scale.of(20, 8))
    found = over.figures
    best = max(best, found["per_s"])
    figures = {
        "highest_per_s": highest,
        "share": found["per_s"] / best * 100,
        "p50_ms": found["p50_ms"],
        "max_ms": found["max_ms"],
        "failed": found["failed"],
        "changed_segments": float(len(before ^ _open_segments(cluster, topic))),
        "new_leaders": float(leader != cluster.groups()["leader"]),
    }
    return Measurement(figures, over.meter)


def _open_segments(cluster: BenchmarkCluster, topic: str) -> set[str]:
    return {segment.name for segment in cluster.client.admin().segments(topic) if segment.phase == "open"}


def idle_clients(cluster: BenchmarkCluster, scale: Scale) -> Measurement:
    """1,000 producers in 10 processes that have written and are at rest."""
    topic = cluster.topic(SEGMENTS, flush_interval="1s")
    processes, each = 10, scale.of(100, 20)
    seconds = scale.of(20, 8)
    loads = [many("idle", cluster, topic, "--producers", each, "--seconds", seconds + 20) for _ in range(processes)]
    for load in loads:
        load.started(180)

    time.sleep(5)
    with Meter(cluster.groups) as meter:
        time.sleep(seconds)
    row = meter.row(0.0)
    results = [load.result() for load in loads]
    figures = {
        "broker_share": row["broker_cpu_s"] / seconds * 100,
        "client_share": sum(it["cpu_s"] / it["seconds"] for it in results) * 100,
        "kb_each": max(it["kb_each"] for it in results),
        "threads": max(it["threads"] for it in results),
    }
    return Measurement(figures, row)


def idle_segments(cluster: BenchmarkCluster, scale: Scale) -> Measurement:
    """200 segments with two replicas that nobody writes to."""
    cluster.topic(scale.of(200, 50))
    time.sleep(8)  # what opening them has left behind
    seconds = scale.of(20, 8)
    with Meter(cluster.groups) as meter:
        time.sleep(seconds)
    row = meter.row(0.0)
    threads = [len(list(Path(f"/proc/{pid}/task").iterdir())) for pid in cluster.broker_pids().values()]
    return Measurement({"broker_share": row["broker_cpu_s"] / seconds * 100, "threads": max(threads)}, row)


def fan_out(cluster: BenchmarkCluster, scale: Scale) -> Measurement:
    """100 consumers in 8 processes at the tail, each of which gets every message, 1,000 messages a second."""
    return _deliver(cluster, cluster.topic(SEGMENTS), [13] * 4 + [12] * 4, scale.of(20, 8))


def group_of_50(cluster: BenchmarkCluster, scale: Scale) -> Measurement:
    """A group of 50 members in 5 processes over 50 segments, 1,000 messages a second."""
    return _deliver(cluster, cluster.topic(50), [10] * 5, scale.of(20, 8), "--group", "workers")


def _deliver(cluster: BenchmarkCluster, topic: str, consumers: list[int], seconds: int, *words: object) -> Measurement:
    """``consumers`` has the number of consumers for each process. What is sent while they begin does not count."""
    warm_up = 6
    with tempfile.TemporaryDirectory() as folder:
        go = Path(folder) / "go"
        words += ("--seconds", seconds, "--go", go)
        loads = [many("tail", cluster, topic, "--consumers", count, *words) for count in consumers]
        for load in loads:
            load.started()
        writer = many("timed", cluster, topic, "--rate", 1000, "--count", 1000 * (seconds + warm_up + 2))
        writer.started()
        time.sleep(warm_up)
        with Meter(cluster.groups) as meter:
            go.touch()
            results = [load.result() for load in loads]
    writer.result()
    row = meter.row(sum(load.cpu for load in loads))
    delivered = sum(sum(it["received"]) for it in results)
    p99 = [one for it in results for one in it["p99_ms"]]
    p50 = [one for it in results for one in it["p50_ms"]]
    figures = {
        "worst_p99_ms": max(p99),
        "p50_ms": sorted(p50)[len(p50) // 2],
        "client_cpu_ms": sum(it["cpu_s"] for it in results) / max(1, delivered) * 1e3,
        "broker_cpu_ms": row["broker_cpu_s"] / max(1, delivered) * 1e3,
        "least_received": min(min(it["received"]) for it in results),
    }
    return Measurement(figures, row)


FAN_OUT_FIGURES = (
    Figure("worst_p99_ms", "slowest consumer's p99 ms", 150.0, higher=False),
    Figure("p50_ms", "p50 ms", higher=False),
    Figure("client_cpu_ms", "client CPU ms a delivery", higher=False),
    Figure("broker_cpu_ms", "brokers' CPU ms a delivery", higher=False),
    Figure("least_received", "fewest messages of a consumer"),
)
FAN_IN_FIGURES = (
    Figure("p50_ms", "p50 ms", higher=False),
    Figure("p99_ms", "p99 ms", 25.0, higher=False),
    Figure("client_cpu_ms", "client CPU ms a message", 0.30, higher=False),
    Figure("broker_cpu_ms", "brokers' CPU ms a message", higher=False),
    Figure("per_s", "messages/s"),
    Figure("threads", "threads of a client", higher=False),
    Figure("failed", "failed", 0.0, higher=False),
)


def fan_in_case(name: str, producers: int, processes: int, rate: float, linger: float = 0.005) -> Case:
    return Case(
        name,
        f"{producers} producers in {processes} processes, {rate:,.0f} messages/s of 200 B in all, linger {linger} s",
        FAN_IN_FIGURES,
        partial(fan_in, producers, processes, rate, linger),
        peers={"kafka": partial(kafka_fan_in, producers, processes, rate, linger)},
    )


CASES = (
    fan_in_case("fan-in", 100, 1, 1000.0),
    fan_in_case("fan-in-8", 100, 8, 1000.0),
    fan_in_case("fan-in-5k", 100, 8, 5000.0),
    fan_in_case("fan-in-1", 1, 1, 1000.0, 0.0),
    Case("fan-out", "100 consumers in 8 processes at the tail, 1,000 messages/s of 200 B", FAN_OUT_FIGURES, fan_out),
    Case("group-of-50", "50 members over 50 segments, 1,000 messages/s of 200 B", FAN_OUT_FIGURES, group_of_50),
    Case(
        "overload",
        "100 producers in 8 processes, twice the highest rate that has a p99 of 100 ms",
        (
            Figure("highest_per_s", "highest messages/s with p99 <= 100 ms"),
            Figure("share", "throughput at twice that, % of the best", 80.0),
            Figure("p50_ms", "p50 ms there", higher=False),
            Figure("max_ms", "longest ms there", 60_000.0, higher=False),
            Figure("failed", "failed", 0.0, higher=False),
            Figure("changed_segments", "segments that were replaced", 0.0, higher=False),
            Figure("new_leaders", "new leaders", 0.0, higher=False),
        ),
        overload,
    ),
    Case(
        "idle-segments",
        "200 segments with two replicas that nobody writes to",
        (
            Figure("broker_share", "brokers' CPU, % of a core", higher=False),
            Figure("threads", "threads of a broker", higher=False),
        ),
        idle_segments,
    ),
    Case(
        "idle-clients",
        "1,000 producers in 10 processes that have written and are at rest",
        (
            Figure("broker_share", "brokers' CPU, % of a core", 3.0, higher=False),
            Figure("client_share", "CPU of all clients, % of a core", higher=False),
            Figure("kb_each", "memory of a producer, KB", 100.0, higher=False),
            Figure("threads", "threads of a client", 8.0, higher=False),
        ),
        idle_clients,
    ),
)
