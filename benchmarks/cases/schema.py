"""The schema changes under load: measures the stalls, and checks that every message is there once afterwards."""

from __future__ import annotations

import time

from benchmarks.harness.cluster import BenchmarkCluster, ClusterSpec, wait_for
from benchmarks.harness.meter import Meter
from benchmarks.loads.keyspace_stalls import TYPED_COLUMNS, StallMeasurement
from benchmarks.loads.rate import quantiles
from benchmarks.model import WHOLE, Case, Figure, Measurement, Scale, whole

RATE = 5_000
SEGMENTS = 8
WIDER = ("int16", "int32", "int64")


def schema_change(cluster: BenchmarkCluster, scale: Scale) -> Measurement:
    """Widens a column that is written three times, then adds a column and drops it again in turn, one at a time."""
    topic = cluster.topic(SEGMENTS, columns=TYPED_COLUMNS)
    admin = cluster.client.admin()
    requested_at: list[float] = []
    with StallMeasurement(cluster.leader, topic) as stall_load, Meter(cluster.groups) as meter:
        writer = stall_load.start(RATE, typed=True)
        for number in range(scale.of(60, 8)):
            time.sleep(0.5)
            wait_for("the change before is done", lambda: cluster.quiet(topic))
            requested_at.append(time.monotonic())
            if number < len(WIDER):
                admin.alter_topic(topic, widen_columns={"small": WIDER[number]})
            elif number % 2:
                admin.alter_topic(topic, add_columns={f"extra{number}": "float64"})
            else:
                admin.alter_topic(topic, drop_columns=[f"extra{number - 1}"])
        time.sleep(1)
        stall_load.stop(writer)
        found = stall_load.result()
        taken = stall_load.stalls(writer, requested_at)
    ms = quantiles(taken)
    figures = {
        "stall_p50_ms": ms["p50_ms"],
        "stall_p99_ms": ms["p99_ms"],
        "stall_max_ms": ms["max_ms"],
        **whole(found),
    }
    notes = {"changes": len(taken), "stalls_ms": [round(s * 1e3) for s in taken], **found}
    return Measurement(figures, meter.row(stall_load.cpu), notes)


CASES = (
    Case(
        "schema-change",
        f"changes of the schema one after the other under 5,000 messages/s on {SEGMENTS} segments",
        (
            Figure("stall_p50_ms", "stall p50, ms", higher=False),
            Figure("stall_p99_ms", "stall p99, ms", higher=False),
            Figure("stall_max_ms", "longest stall, ms", 300.0, higher=False),
            *WHOLE,
        ),
        schema_change,
        ClusterSpec(brokers=3),
        once=True,
    ),
)
