"""SeaweedFS fails under load: brokers keep their memory limit, writers wait, and each acked message is read once."""

from __future__ import annotations

import time

import numpy as np

from benchmarks.harness.cluster import BenchmarkCluster, ClusterSpec
from benchmarks.harness.meter import Meter, PeakMemory, memory_mb
from benchmarks.loads.keyspace_stalls import Floats, StallMeasurement
from benchmarks.model import WHOLE, Case, Figure, Measurement, Scale, whole
from smq_core.model.units import parse_size

# Messages per second: as fast as they are taken.
FULL = 1e9
SIZE = 1000
# The rate is normal again when a second has this share of what the median second had before.
NORMAL = 0.8


def filer_outage(cluster: BenchmarkCluster, scale: Scale) -> Measurement:
    """A writer from well before SeaweedFS is killed until well after it was started again."""
    topic = cluster.topic(2)
    pids = cluster.broker_pids()
    with (
        StallMeasurement(cluster.leader, topic) as stall_load,
        Meter(cluster.groups) as meter,
        PeakMemory(pids.values()) as memory,
    ):
        writer = stall_load.start(FULL)
        time.sleep(scale.of(10, 5))
        gone = time.monotonic()
        cluster.seaweed.kill()
        time.sleep(scale.of(30, 12))
        cluster.seaweed.start()
        back = time.monotonic()
        time.sleep(scale.of(20, 10))
        until = time.monotonic()
        stall_load.stop(writer)
        found = stall_load.result()
        sent, acks = stall_load.times(writer)
    assert cluster.broker_pids() == pids, "a broker died while SeaweedFS was away"
    highest = max(memory_mb(pid, "VmHWM") for pid in pids.values())
    normal = float(np.median(_rates(acks, sent[1], gone)))
    figures = {
        "of_limit": memory.highest_mb * 1e6 / parse_size(cluster.spec.memory),
        "held_s": held_back(sent, gone, until),
        "acked_mb": _between(acks, gone, back) * SIZE / 1e6,
        "normal_after_s": normal_again(acks, back, until, NORMAL * normal),
        **whole(found),
    }
    notes = {"rss_max_mb": round(highest), "away_s": round(back - gone, 1), "before_mb_s": round(normal * SIZE / 1e6)}
    notes["after_mb_s"] = round(_between(acks, back, until) * SIZE / 1e6 / (until - back))
    return Measurement(figures, meter.row(stall_load.cpu), {**notes, **found})


def held_back(sent: Floats, start: float, until: float) -> float:
    """The longest time between ``start`` and ``until`` in which ``send`` did not return, in seconds."""
    times = np.concatenate([[start], sent[(sent > start) & (sent < until)], [until]])
    return float(np.diff(times).max())


def normal_again(acks: Floats, back: float, until: float, rate: float) -> float:
    """Seconds from ``back`` to the first whole second with ``rate`` acks; infinite when there is none."""
    for after in np.arange(0.0, until - back - 1.0, 0.1):
        if _between(acks, back + after, back + after + 1.0) >= rate:
            return float(after)
    return float("inf")


def _rates(acks: Floats, start: float, until: float) -> list[int]:
    """Acks in each whole second."""
    return [_between(acks, at, at + 1.0) for at in np.arange(start, until - 1.0, 1.0)]


def _between(acks: Floats, start: float, until: float) -> int:
    return int(((acks >= start) & (acks < until)).sum())


CASES = (
    Case(
        "filer-outage",
        "SeaweedFS away for 30 s under full load, brokers with 512 MiB",
        (
            Figure("of_limit", "highest memory without mapped files / limit", 1.0, higher=False),
            Figure("held_s", "producer held back at one go, s", 1.0),
            Figure("acked_mb", "MB acked while it is away"),
            Figure("normal_after_s", "at the normal rate again after, s", higher=False),
            *WHOLE,
        ),
        filer_outage,
        ClusterSpec(memory="512Mi"),
        once=True,
    ),
)
