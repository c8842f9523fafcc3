"""The metric of logs that wait to be sealed."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from smq_broker.recovery.recovered_logs import RecoveredLogs


class RecoveredCollector(Collector):
    def __init__(self, recovered: RecoveredLogs) -> None:
        self._recovered = recovered

    def collect(self) -> Iterable[Metric]:
        segments = GaugeMetricFamily(
            "smq_recovered_segments", "Segments from the journals of former processes that are not sealed yet."
        )
        segments.add_metric([], len(self._recovered.unsealed()))
        return (segments,)
