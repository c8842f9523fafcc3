"""Metrics that are counted when something happens. ``segments/segment_metrics.py`` reads the others at each scrape."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

from smq_core.access.rights import Right


class BrokerMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        disable_created_metrics()  # they would double the number of series
        self.registry = registry
        self.chunks = Counter("smq_chunks_written_total", "Chunks written to the filer.", registry=registry)
        self.flush_seconds = Histogram(
            "smq_chunk_write_seconds",
            "Encoding a chunk and its PUT, retries included.",
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
            registry=registry,
        )
        self.store_errors = Counter(
            "smq_store_errors_total", "Requests to the filer without a clear outcome.", registry=registry
        )
        self.chain_checks = Counter(
            "smq_chain_checks_total",
            "Reads of a chain's end while its tail waits for more messages.",
            registry=registry,
        )
        self.seals = Counter("smq_segments_sealed_total", "Segments that were sealed here.", registry=registry)
        self.file_lists = Counter("smq_file_lists_written_total", "File lists written to the filer.", registry=registry)
        self.errors = Counter("smq_request_errors_total", "Requests that were refused.", ["code"], registry=registry)
        self.access_denied = Counter(
            "smq_broker_access_denied_total",
            "Calls and streams that were refused because of who the caller is.",
            ["reason"],
            registry=registry,
        )
        self.grace_grants = Counter(
            "smq_broker_grace_grants_total",
            "Checks of a right that an expired grant passed, because no leader answers.",
            registry=registry,
        )
        self.open_calls = Counter(
            "smq_broker_open_calls_total",
            "Calls and streams in clear text, in mode permissive. A stream counts again each minute.",
            ["call"],
            registry=registry,
        )
        self.throttled = Counter(
            "smq_quota_throttled_seconds_total",
            "How long streams waited because of a quota.",
            ["topic", "right"],
            registry=registry,
        )
        self.thread_failures = Counter(
            "smq_thread_failures_total",
            "Threads that could not be started, and unexpected errors in them.",
            ["thread"],
            registry=registry,
        )
        self.streams = Gauge("smq_streams", "Open Flight streams.", ["kind"], registry=registry)
        self.sessions = Gauge("smq_producer_sessions", "Open sessions of producers for segments.", registry=registry)
        self.waits = Counter(
            "smq_producer_waits_total", "Batches that had to wait for memory (backpressure).", registry=registry
        )

    def count_throttled(self, topic: str, right: Right, seconds: float) -> None:
        self.throttled.labels(topic, right.value).inc(seconds)
