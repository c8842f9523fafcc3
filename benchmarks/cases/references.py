"""Publishing by reference: how much of the plain upload's speed is left, and what it costs the brokers.

What the brokers take when idle in the same time does not count.
"""

from __future__ import annotations

import time

from benchmarks.harness import child_process
from benchmarks.harness.cluster import BenchmarkCluster, ClusterSpec
from benchmarks.harness.meter import Meter
from benchmarks.model import Case, Figure, Measurement, Scale

GB = 10**9
SEGMENTS = 2
SIZE = 1000


def references(cluster: BenchmarkCluster, scale: Scale) -> Measurement:
    nbytes = scale.of(GB, GB // 4)
    topic = cluster.topic(SEGMENTS, flush_interval="1s")
    seconds: dict[str, float] = {}
    cpu: dict[str, float] = {}

    def run(what: str, nbytes: int, name: str) -> int:
        load = child_process.ours(what, cluster.leader, topic, "--size", SIZE, "--bytes", nbytes)
        result = load.result()
        seconds[name] = float(result["seconds"])
        return int(result["rows"])

    def measured(what: str, nbytes: int, name: str) -> None:
        nonlocal published
        with Meter(cluster.groups) as meter:
            published += run(what, nbytes, name) + 1
            cluster.wait_flushed(topic, published)
        cpu[name] = max(0.0, meter.spent("broker") - idle_cores * meter.wall)

    published = 0
    with Meter(cluster.groups) as idle_meter:
        time.sleep(scale.of(15, 5))
    idle_cores = idle_meter.spent("broker") / idle_meter.wall
    run("encode_and_put", nbytes, "encode_and_put")
    with Meter(cluster.groups) as whole:
        measured("by_reference", nbytes, "by_reference")
    run("put_files", nbytes, "put_files")
    measured("publish_files", nbytes, "publish_files")
    measured("publish_others", nbytes, "publish_others")
    measured("by_reference", GB // 1000, "small")
    measured("stream", nbytes, "stream")
    figures = {
        "write_share": seconds["encode_and_put"] / seconds["by_reference"],
        "files_share": seconds["put_files"] / seconds["publish_files"],
        "other_files_share": seconds["put_files"] / seconds["publish_others"],
        "mb_s": nbytes / seconds["by_reference"] / 1e6,
        "broker_cpu_share": cpu["by_reference"] / max(0.01, cpu["stream"]),
        "broker_cpu_s": cpu["by_reference"],
        "broker_cpu_small_s": cpu["small"],
    }
    notes = {f"{name}_s": round(taken, 2) for name, taken in seconds.items()}
    notes |= {f"{name}_broker_cpu_s": round(taken, 2) for name, taken in cpu.items()}
    notes["broker_idle_cores"] = round(idle_cores, 3)
    return Measurement(figures, whole.row(0.0), notes)


CASES = (
    Case(
        "references",
        f"1 GB of 1 KB messages by reference, {SEGMENTS} segments, against plain uploads and streaming",
        (
            Figure("write_share", "speed of write(by_reference) / encoding and PUT", 0.8),
            Figure("files_share", "speed of publish_files / PUT, files of write_upload", 0.8),
            Figure("other_files_share", "speed of publish_files / PUT, other files"),
            Figure("mb_s", "MB/s of write(by_reference)"),
            Figure("broker_cpu_share", "broker CPU / streamed", 0.02, higher=False),
            Figure("broker_cpu_s", "broker CPU s for 1 GB", higher=False),
            Figure("broker_cpu_small_s", "broker CPU s for 1 MB", higher=False),
        ),
        references,
        ClusterSpec(memory="4Gi"),
        once=True,
    ),
)
