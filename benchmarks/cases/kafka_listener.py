"""Kafka's own clients on the brokers' listener, and on Kafka in turn."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.harness.cluster import BenchmarkCluster, ClusterSpec
from benchmarks.harness.meter import Groups
from benchmarks.model import Case, Figure, Measurement, Scale
from benchmarks.peers import cases as peers
from benchmarks.peers.kafka_clients import KafkaClients

# As Kafka has them: each broker leads one.
PARTITIONS = 2
# Nothing of a tail is written to the filer before it is read.
NEVER = {"flush_bytes": "2Gi", "flush_interval": "1h"}
AT_ONCE = {"flush_bytes": "32Mi", "flush_interval": "1s"}

Load = Callable[[KafkaClients, Scale], Measurement]


class Listener(KafkaClients):
    """A cluster of SeaweedMQ, as Kafka's clients see it. ``flush`` is what its topics have in place of the defaults."""

    def __init__(self, cluster: BenchmarkCluster, flush: dict[str, str]) -> None:
        super().__init__(cluster.folder)
        self._cluster = cluster
        self._flush = flush
        self.write_payload()

    @property
    def bootstrap(self) -> str:
        return self._cluster.kafka

    def groups(self) -> Groups:
        return self._cluster.groups()

    def topic(self) -> str:
        return self._cluster.topic(PARTITIONS, partitions=PARTITIONS, partitioner="Kafka", **self._flush)

    def drop(self, topic: str) -> None:
        self._cluster.client.admin().delete(topic)

    def wait_written(self, topic: str, count: int) -> None:
        if self._flush == AT_ONCE:
            self._cluster.wait_flushed(topic, count)


def _case(name: str, about: str, figures: tuple[Figure, ...], load: Load, who: str, flush: dict[str, str]) -> Case:
    def ours(cluster: BenchmarkCluster, scale: Scale) -> Measurement:
        return load(Listener(cluster, flush), scale)

    return Case(name, about, figures, ours, ClusterSpec(memory="4Gi", kafka=True), {who: load})


PER_CPU = Figure("per_broker_cpu_s", "records per broker CPU s")
WRITES = (Figure("mb_s", "MB/s acked", floor=("kafka java", 0.7)), PER_CPU)
READS = (Figure("mb_s", "MB/s", floor=("kafka java", 0.8)), PER_CPU)
LATENCIES = (
    Figure("p50_ms", "p50 ms", higher=False),
    Figure("p99_ms", "p99 ms", higher=False),
    PER_CPU,
)

CASES = (
    _case("kafka-write-1k", "1 KB, Kafka's Java producer", WRITES, peers.java_write_1k, "kafka java", {}),
    _case("kafka-write-100b", "100 B, Kafka's Java producer", WRITES, peers.java_write_100b, "kafka java", {}),
    _case("kafka-tail-1k", "1 KB, Kafka's Java consumer, memory", READS, peers.java_read_1k, "kafka java", NEVER),
    _case("kafka-filer-1k", "1 KB, Kafka's Java consumer, filer", READS, peers.java_read_1k, "kafka java", AT_ONCE),
    _case("kafka-latency", "1 KB at 1,000/s, librdkafka", LATENCIES, peers.kafka_latency, "kafka", {}),
)
