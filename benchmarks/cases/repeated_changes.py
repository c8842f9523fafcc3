"""Changes one topic again and again under load: measures the stall of each change, and reads everything back."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.harness.cluster import BenchmarkCluster, wait_for
from benchmarks.harness.meter import Meter
from benchmarks.loads.keyspace_stalls import StallMeasurement
from benchmarks.loads.rate import quantiles
from benchmarks.model import WHOLE, Figure, whole

# Messages per second of the writer.
RATE = 5_000


@dataclass(frozen=True, slots=True)
class ChangesResult:
    """``stalls``: in seconds, one per change. ``found``: what the writer and the reader counted."""

    stalls: list[float]
    found: dict[str, Any]
    meter: dict[str, float]

    @property
    def stalls_ms(self) -> list[int]:
        return [round(stall * 1e3) for stall in self.stalls]

    def figures(self, unit: str = "ms") -> dict[str, float]:
        """The figures of ``stall_figures``."""
        ms, per_unit = quantiles(self.stalls), 1e3 if unit == "s" else 1.0
        stalls = {f"stall_{name}_{unit}": ms[f"{name}_ms"] / per_unit for name in ("p50", "p99", "max")}
        return {**stalls, **whole(self.found)}


def stall_figures(unit: str = "ms", p99: float | None = None, longest: float | None = None) -> tuple[Figure, ...]:
    """``p99`` and ``longest`` are targets in that unit, ms or s."""
    return (
        Figure(f"stall_p50_{unit}", f"stall p50, {unit}", higher=False),
        Figure(f"stall_p99_{unit}", f"stall p99, {unit}", p99, higher=False),
        Figure(f"stall_max_{unit}", f"longest stall, {unit}", longest, higher=False),
        *WHOLE,
    )


def change_repeatedly(
    cluster: BenchmarkCluster,
    topic: str,
    changes: int,
    change: Callable[[int], float],
    *,
    pause: float = 0.5,
    pause_at_end: float = 1.0,
    typed: bool = False,
) -> ChangesResult:
    """``change`` starts change n and returns when, by CLOCK_MONOTONIC. It is called when the change before is done.

    ``pause``: seconds before each change. ``typed``: the topic has the columns of ``TYPED_COLUMNS``.
    """
    began: list[float] = []
    with StallMeasurement(cluster.leader, topic) as stall_load, Meter(cluster.groups) as meter:
        writer = stall_load.start(RATE, typed=typed)
        for number in range(changes):
            time.sleep(pause)
            wait_for("the change before is done", lambda: cluster.quiet(topic))
            began.append(change(number))
        time.sleep(pause_at_end)
        stall_load.stop(writer)
        found = stall_load.result()
        stalls = stall_load.stalls(writer, began)
    return ChangesResult(stalls, found, meter.row(stall_load.cpu))
