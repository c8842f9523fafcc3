"""Segments change under load: measures the writers' stalls, and checks that every message is there once afterwards."""

from __future__ import annotations

import itertools
import time

from benchmarks.cases.repeated_changes import RATE, change_repeatedly, stall_figures
from benchmarks.harness.cluster import BenchmarkCluster, ClusterSpec, wait_for
from benchmarks.harness.deployment import ProcessDeployment
from benchmarks.harness.meter import Meter
from benchmarks.loads.keyspace_stalls import StallMeasurement
from benchmarks.model import WHOLE, Case, Figure, Measurement, Scale, whole
from benchmarks.peers.cases import kafka_failover


def failover(cluster: BenchmarkCluster, scale: Scale) -> Measurement:
    """Kills whoever leads the segment, each time when the one killed before is back and has a part in it again."""
    topic = cluster.topic(1)

    def kill_primary(number: int) -> float:
        return cluster.kill(cluster.primary(topic))

    result = change_repeatedly(cluster, topic, scale.of(50, 5), kill_primary, pause=1.5, pause_at_end=2)
    notes = {"kills": len(result.stalls), "stalls_s": [round(s, 3) for s in result.stalls], **result.found}
    return Measurement(result.figures("s"), result.meter, notes)


def rolling_restart(cluster: BenchmarkCluster, scale: Scale) -> Measurement:
    """Four brokers, each replaced as a Deployment with maxSurge 1 and maxUnavailable 0 does it."""
    rounds = scale.of(3, 1)
    with ProcessDeployment(cluster, 4) as deployment:
        topic = cluster.topic(4)
        with StallMeasurement(cluster.leader, topic) as stall_load, Meter(deployment.groups) as meter:
            writer = stall_load.start(RATE)
            time.sleep(2)
            began = time.monotonic()
            terminated = [at for _ in range(rounds) for at in deployment.restart()]
            wait_for("the last broker has left", lambda: len(deployment.pids()) == 4)
            seconds = time.monotonic() - began
            time.sleep(2)
            stall_load.stop(writer)
            found = stall_load.result()
            taken = stall_load.stalls(writer, [began, *terminated])
        # All its replicas die together with the deployment, which would hold up the drains of a run that is repeated.
        cluster.client.admin().delete(topic)
    figures = {"stall_max_ms": max(taken) * 1e3, "rollout_s": seconds / rounds, **whole(found)}
    notes = {"restarts": len(terminated), "stalls_ms": [round(s * 1e3) for s in taken], **found}
    return Measurement(figures, meter.row(stall_load.cpu), notes)


def split_merge(cluster: BenchmarkCluster, scale: Scale) -> Measurement:
    """Requests a split of the widest segment and a merge of two neighbours in turn, one at a time."""
    topic = cluster.topic(2, most=8)
    admin = cluster.client.admin()
    kinds: list[str] = []

    def split_or_merge(number: int) -> float:
        segments = sorted(admin.segments(topic), key=lambda s: s.start)
        began = time.monotonic()
        if number % 8 < 4:  # from 2 segments to 6 and back
            kinds.append("split")
            admin.split(topic, max(segments, key=lambda s: s.stop - s.start).name)
        else:
            kinds.append("merge")
            pairs = list(itertools.pairwise(segments))
            a, b = min(pairs, key=lambda pair: pair[1].stop - pair[0].start)
            admin.merge(topic, [a.name, b.name])
        return began

    result = change_repeatedly(cluster, topic, scale.of(200, 10), split_or_merge)
    stalls = list(zip(result.stalls_ms, kinds, strict=True))
    each = {kind: [ms for ms, of in stalls if of == kind] for kind in ("split", "merge")}
    return Measurement(result.figures(), result.meter, {"stalls_ms": each, **result.found})


FLOOD_SCALING = "{target: {messagesPerSecond: 1000, bytesPerSecond: 1Ti}, splitAfter: 5s, mergeAfter: 10s}"
BASE, FLOOD, MOST = 200, 5_000, 8


def flood(cluster: BenchmarkCluster, scale: Scale) -> Measurement:
    """A fifth of the target from one writer all the time; then another one with five times the target, for a while."""
    topic = cluster.topic(1, most=MOST, scaling=FLOOD_SCALING)
    with StallMeasurement(cluster.leader, topic) as stall_load, Meter(cluster.groups) as meter:
        base = stall_load.start(BASE, key_count=8)
        time.sleep(5)
        torrent = stall_load.start(FLOOD)
        wait_for(f"{MOST} segments", lambda: _open(cluster, topic) >= MOST and cluster.quiet(topic), 120)
        reached = time.monotonic()
        time.sleep(scale.of(10, 2))
        stall_load.stop(torrent)
        ebbed = time.monotonic()
        wait_for("one segment again", lambda: _open(cluster, topic) == 1 and cluster.quiet(topic), 180)
        back = time.monotonic()
        time.sleep(1)
        stall_load.stop(base)
        began = float(stall_load.times(torrent)[0][1])
        found = stall_load.result()
        rising = max(stall_load.stalls(torrent, [began]))
        falling = max(stall_load.stalls(base, [ebbed], key_count=8))
    figures = {
        "seconds_to_8": reached - began,
        "stall_max_ms": rising * 1e3,
        "back_s": back - ebbed,
        **whole(found),
    }
    notes = {"stall_going_back_ms": round(falling * 1e3), **found}
    return Measurement(figures, meter.row(stall_load.cpu), notes)


def _open(cluster: BenchmarkCluster, topic: str) -> int:
    return sum(s.phase == "open" for s in cluster.client.admin().segments(topic))


CASES = (
    Case(
        "failover",
        "kill -9 of a primary under 5,000 messages/s of 1 KB, again and again",
        stall_figures("s", p99=1.0),
        failover,
        ClusterSpec(brokers=3),
        {"kafka": kafka_failover},
        once=True,
    ),
    Case(
        "rolling-restart",
        "four brokers replaced one after the other, the new one first, under 5,000 messages/s",
        (
            Figure("stall_max_ms", "longest stall, ms", 500.0, higher=False),
            Figure("rollout_s", "whole rollout, s", higher=False),
            *WHOLE,
        ),
        rolling_restart,
        ClusterSpec(brokers=0),
        once=True,
    ),
    Case(
        "split-merge",
        "splits and merges one after the other under 5,000 messages/s",
        stall_figures(p99=200.0, longest=1000.0),
        split_merge,
        ClusterSpec(brokers=3),
        once=True,
    ),
    Case(
        "flood",
        "five times the target at once: from 1 segment to 8, and back",
        (
            Figure("seconds_to_8", "s from the flood's first message to 8 segments", 30.0, higher=False),
            Figure("stall_max_ms", "longest stall meanwhile, ms", 1000.0, higher=False),
            Figure("back_s", "s from its end to 1 segment", higher=False),
            *WHOLE,
        ),
        flood,
        ClusterSpec(brokers=3),
        once=True,
    ),
)
