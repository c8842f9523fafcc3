"""The schema changes under load: measures the stalls, and checks that every message is there once afterwards."""

from __future__ import annotations

import time

from benchmarks.cases.repeated_changes import change_repeatedly, stall_figures
from benchmarks.harness.cluster import BenchmarkCluster, ClusterSpec
from benchmarks.loads.keyspace_stalls import TYPED_COLUMNS
from benchmarks.model import Case, Measurement, Scale

SEGMENTS = 8
WIDER = ("int16", "int32", "int64")


def schema_change(cluster: BenchmarkCluster, scale: Scale) -> Measurement:
    """Widens a column that is written three times, then adds a column and drops it again in turn, one at a time."""
    topic = cluster.topic(SEGMENTS, columns=TYPED_COLUMNS)
    admin = cluster.client.admin()

    def change(number: int) -> float:
        began = time.monotonic()
        if number < len(WIDER):
            admin.alter_topic(topic, widen_columns={"small": WIDER[number]})
        elif number % 2:
            admin.alter_topic(topic, add_columns={f"extra{number}": "float64"})
        else:
            admin.alter_topic(topic, drop_columns=[f"extra{number - 1}"])
        return began

    result = change_repeatedly(cluster, topic, scale.of(60, 8), change, typed=True)
    notes = {"changes": len(result.stalls), "stalls_ms": result.stalls_ms, **result.found}
    return Measurement(result.figures(), result.meter, notes)


CASES = (
    Case(
        "schema-change",
        f"changes of the schema one after the other under 5,000 messages/s on {SEGMENTS} segments",
        stall_figures(longest=300.0),
        schema_change,
        ClusterSpec(brokers=3),
        once=True,
    ),
)
