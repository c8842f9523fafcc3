"""SeaweedFS away under load: what was acked must be found afterwards, once."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks import child
from benchmarks.cluster import Cluster, wait_for
from benchmarks.meter import Meter, memory_mb
from benchmarks.model import Row, Scale

GIB = 2**30


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
