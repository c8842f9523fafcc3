"""What journals write, counted in plain numbers and read when Prometheus scrapes."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from smq_broker.journal.disk_activity import DiskActivity
from smq_storage.process.locks import make_lock


class JournalMetrics(Collector):
    """The JournalMeter of a process."""

    def __init__(self, activity: DiskActivity) -> None:
        self._activity = activity
        self._lock = make_lock()
        self.disk_bytes = 0
        self.written_bytes = 0
        self.writes = 0
        self.seconds = 0.0
        self.failures = 0

    def written(self, nbytes: int, seconds: float) -> None:
        with self._lock:
            self.written_bytes += nbytes
            self.writes += 1
            self.seconds += seconds

    def resized(self, nbytes: int) -> None:
        with self._lock:
            self.disk_bytes += nbytes

    def failed(self) -> None:
        with self._lock:
            self.failures += 1

    def collect(self) -> Iterable[Metric]:
        disk = GaugeMetricFamily(
            "smq_journal_disk_bytes", "Size of the journal's files, also of those to be used again."
        )
        disk.add_metric([], self.disk_bytes)
        written = CounterMetricFamily("smq_journal_bytes", "Bytes written to the journal.")
        written.add_metric([], self.written_bytes)
        writes = CounterMetricFamily("smq_journal_writes", "Records written to the journal.")
        writes.add_metric([], self.writes)
        seconds = CounterMetricFamily("smq_journal_write_seconds", "Time spent in writes to the journal.")
        seconds.add_metric([], self.seconds)
        failures = CounterMetricFamily(
            "smq_journal_failures", "Segments that continue without a journal, because its disk failed."
        )
        failures.add_metric([], self.failures)
        busy = GaugeMetricFamily(
            "smq_journal_busy_seconds", "For how long the oldest unfinished operation on the journal's disk has run."
        )
        busy.add_metric([], self._activity.seconds(self._activity.oldest()))
        return (disk, written, writes, seconds, failures, busy)
