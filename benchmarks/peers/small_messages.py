"""Kafka's version of the cases with many small messages: as many ``confluent-kafka`` producers."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from benchmarks.harness.meter import Meter
from benchmarks.loads.rate import quantiles
from benchmarks.model import Measurement, Scale
from benchmarks.peers.kafka import Kafka


def kafka_fan_in(producers: int, processes: int, rate: float, linger: float, kafka: Kafka, scale: Scale) -> Measurement:
    topic = kafka.topic()
    events = kafka.folder / "events-200.txt"
    if not events.exists():
        events.write_bytes(b"\n".join(b"x" * 200 for _ in range(16)))
    count = int(rate * scale.of(20, 8) / processes)
    words: tuple[Any, ...] = ("--payload", events, "--producers", producers // processes, "--rate", rate / processes)
    words += ("--count", count, "--linger-ms", linger * 1e3 if linger == 0 else 5.0)
    with tempfile.TemporaryDirectory() as folder:
        go = Path(folder) / "go"
        loads = [kafka.load("fan_in", topic, *words, "--go", go) for _ in range(processes)]
        for load in loads:
            load.started()
        with Meter(kafka.groups) as meter:
            go.touch()
            rows = [load.result() for load in loads]
    kafka.drop(topic)
    row = meter.row(sum(load.cpu for load in loads))
    messages = sum(it["rows"] for it in rows)
    figures = quantiles([one / 1e3 for it in rows for one in it["taken_ms"]])
    figures["client_cpu_ms"] = sum(it["cpu_s"] for it in rows) / messages * 1e3
    figures["broker_cpu_ms"] = row["broker_cpu_s"] / messages * 1e3
    figures["per_s"] = messages / max(it["seconds"] for it in rows)
    figures["failed"] = sum(it["failed"] for it in rows)
    return Measurement(figures, row)
