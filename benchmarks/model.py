"""The model of a benchmark: figures with their targets, the cases that measure them, and the resulting rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from benchmarks.harness.cluster import BenchmarkCluster, ClusterSpec
from benchmarks.harness.meter import NOISY

OURS = "smq"


@dataclass(frozen=True, slots=True)
class Scale:
    """``quick``: a look at everything rather than a measurement."""

    quick: bool = False

    def of(self, full: int, quick: int) -> int:
        return quick if self.quick else full


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a case. ``floor``: it must also reach this share of a peer's, such as ``("relay", 0.5)``."""

    key: str
    label: str
    target: float | None = None
    higher: bool = True
    floor: tuple[str, float] | None = None

    def met(self, value: float) -> bool | None:
        """None without a target."""
        if self.target is None:
            return None
        return value >= self.target if self.higher else value <= self.target


# What reading everything back must find.
WHOLE = (
    Figure("lost", "acked and lost", 0.0, higher=False),
    Figure("doubled", "doubled", 0.0, higher=False),
    Figure("disorder", "out of order within a key", 0.0, higher=False),
)


def whole(found: Mapping[str, int]) -> dict[str, float]:
    """The figures of WHOLE."""
    return {figure.key: float(found[figure.key]) for figure in WHOLE}


@dataclass(slots=True)
class Measurement:
    """One run of one case by one queue."""

    figures: dict[str, float]
    meter: dict[str, float] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)
    case: str = ""
    who: str = OURS
    run: int = 0

    @property
    def noisy(self) -> bool:
        return self.meter.get("other_cores", 0.0) > NOISY


@dataclass(frozen=True, slots=True)
class Case:
    """``ours`` is run with a fresh cluster of ``cluster``; each peer's function gets that peer."""

    name: str
    about: str
    figures: tuple[Figure, ...]
    ours: Callable[[BenchmarkCluster, Scale], Measurement]
    cluster: ClusterSpec = field(default_factory=ClusterSpec)
    peers: Mapping[str, Callable[[Any, Scale], Measurement]] = field(default_factory=dict)
    once: bool = False
    """Several runs say no more than one."""


def throughput(result: Mapping[str, Any], meter: Mapping[str, float]) -> dict[str, float]:
    """Rates of what a load reported, and records per CPU second: see ``per_cpu``."""
    rows, seconds = float(result["rows"]), float(result["seconds"])
    found = {"per_s": rows / seconds} | per_cpu(rows, meter)
    if "bytes" in result:
        found["mb_s"] = float(result["bytes"]) / seconds / 1e6
    return found


def latencies(result: Mapping[str, Any], meter: Mapping[str, float]) -> dict[str, float]:
    """Quantiles of what a load reported, and records per CPU second."""
    found = {key: float(value) for key, value in result.items() if key.endswith("_ms")}
    return found | per_cpu(float(result["rows"]), meter)


def per_cpu(rows: float, meter: Mapping[str, float]) -> dict[str, float]:
    """Records per CPU second of the brokers, and of all servers: stores and leaders too."""
    servers = sum(seconds for name, seconds in meter.items() if name.endswith("_cpu_s") and name != "client_cpu_s")
    return {"per_broker_cpu_s": rows / max(0.01, meter["broker_cpu_s"]), "per_server_cpu_s": rows / max(0.01, servers)}


def typical(rows: list[Measurement], key: str) -> tuple[float, float, float, bool] | None:
    """Median, least and greatest of a figure, and whether every run was noisy; quiet runs alone if there are any."""
    having = [r for r in rows if key in r.figures]
    quiet = [r for r in having if not r.noisy]
    values = [r.figures[key] for r in quiet or having]
    return (median(values), min(values), max(values), not quiet) if values else None
