"""Metrics of the proxy, beside those of the listener."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge


class ProxyMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.connections = Gauge(
            "smq_kafka_proxy_connections", "Open connections of the proxy to brokers.", registry=registry
        )
        self.failures = Counter(
            "smq_kafka_proxy_failures_total",
            "Connections to brokers that could not be made, and requests that no broker has answered.",
            registry=registry,
        )
