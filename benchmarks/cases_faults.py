"""Cases in which something dies, and what was acked must be found afterwards, once."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
import numpy.typing as npt

from benchmarks import child
from benchmarks.cluster import Cluster, wait_for
from benchmarks.meter import Meter, memory_mb
from benchmarks.model import Row, Scale
from benchmarks.pace import longest_gaps

GIB = 2**30
RATE = 5_000


def failover(cluster: Cluster, scale: Scale) -> Row:
    """Kills whoever leads the segment, each time when the last one killed is back."""
    kills = scale.of(10, 3)
    every = 5.0
    count = int(RATE * (every * (kills + 1)))
    topic = cluster.topic(1)
    with tempfile.TemporaryDirectory() as folder, Meter(cluster.groups) as meter:
        times = Path(folder) / "acks.npy"
        load = child.ours("steady", cluster.leader, topic, "--count", count, "--rate", RATE, "--times", times)
        wait_for("the first ack", lambda: "started" in load.text() or not load.running(), 60)
        killed = []
        for _ in range(kills):
            time.sleep(every)
            wait_for("all brokers back", lambda: len(cluster.broker_pids()) == cluster.spec.brokers, 60)
            killed.append(cluster.kill(cluster.primary(topic)))
        result = load.result()
        acks = np.load(times)
    found = child.ours("numbers", cluster.leader, topic, "--count", count).result()
    stalls = longest_gaps(acks.tolist(), killed)
    lost = max(0, found["missing"] - (count - result["acked"]))
    figures = {
        "stall_max_s": max(stalls),
        "stall_median_s": median(stalls),
        "lost": float(lost),
        "doubled": float(found["doubled"]),
    }
    notes = {"stalls_s": [round(s, 3) for s in stalls], "messages": count, **result, **found}
    return Row(figures, meter.row(load.cpu), notes)


def filer_outage(cluster: Cluster, scale: Scale) -> Row:
    """Numbered messages as fast as they are taken; SeaweedFS is killed for a while in between and started again."""
    away = scale.of(30, 8)
    count = scale.of(1_500_000, 300_000)
    topic = cluster.topic(2)
    pids = cluster.broker_pids()
    with tempfile.TemporaryDirectory() as folder, Meter(cluster.groups) as meter:
        times = Path(folder) / "acks.npy"
        words = ("--count", count, "--rate", 1e9, "--times", times)
        load = child.ours("steady", cluster.leader, topic, *words)
        wait_for("the first ack", lambda: "started" in load.text() or not load.running(), 60)
        time.sleep(2)
        gone = time.monotonic()
        cluster.seaweed.kill()
        time.sleep(away)
        cluster.seaweed.start()
        back = time.monotonic()
        result = load.result()
        acks = np.load(times)
    assert cluster.broker_pids() == pids, "a broker died while SeaweedFS was away"
    found = child.ours("numbers", cluster.leader, topic, "--count", count).result()
    lost = max(0, found["missing"] - (count - result["acked"]))
    highest = max(memory_mb(pid, "VmHWM") for pid in pids.values())
    figures = {
        "of_limit": highest * 1e6 / GIB,
        "lost": float(lost),
        "doubled": float(found["doubled"]),
        "acks_resumed_s": _first_after(acks, back),
    }
    during = int(((acks > gone) & (acks < back)).sum())
    notes = {"rss_max_mb": round(highest), "acked_while_away": during, **result, **found}
    return Row(figures, meter.row(load.cpu), notes)


def _first_after(acks: npt.NDArray[np.float64], at: float) -> float:
    later = acks[acks > at]
    return float(later[0] - at) if len(later) else float("inf")
