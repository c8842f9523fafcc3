"""Metrics of the listener for Kafka clients."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

from smq_broker.kafka.protocol.entities import api_name


class KafkaMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.connections = Gauge("smq_kafka_connections", "Open connections of Kafka clients.", registry=registry)
        self._requests = Counter("smq_kafka_requests_total", "Requests of Kafka clients.", ["api"], registry=registry)
        self.closed = Counter(
            "smq_kafka_connections_closed_total",
            "Connections of Kafka clients that the broker has closed.",
            ["reason"],
            registry=registry,
        )

    def count_request(self, api_key: int) -> None:
        self._requests.labels(api_name(api_key)).inc()
