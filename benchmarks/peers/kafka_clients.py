"""Kafka's clients, as loads: its Java tools, and confluent-kafka in a process of Python."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from benchmarks.harness import tools
from benchmarks.harness.child_process import LoadProcess
from benchmarks.harness.meter import Groups
from benchmarks.loads import payload

HERE = Path(__file__).resolve().parent
LOADS = HERE / "kafka_load.py"


def libraries() -> Path:
    """The folder of jars. Raises ToolMissing."""
    tools.program("java", "Kafka needs Java 17: apt install openjdk-17-jre-headless")
    return tools.jars(HERE / "pom.xml", "kafka-4.3.1")


class KafkaClients(ABC):
    """Loads for whoever speaks Kafka's protocol at ``bootstrap``. ``folder`` gets the files of events.

    Raises ToolMissing.
    """

    folder: Path

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._jars = libraries()
        self._python = tools.python()

    @property
    @abstractmethod
    def bootstrap(self) -> str: ...

    @abstractmethod
    def groups(self) -> Groups:
        """The processes that serve, for a Meter."""

    @abstractmethod
    def topic(self) -> str:
        """Creates a topic of two partitions with two replicas. Returns its name."""

    @abstractmethod
    def drop(self, topic: str) -> None: ...

    @abstractmethod
    def wait_written(self, topic: str, count: int) -> None:
        """Returns when these messages are where the case wants to read them."""

    def write_payload(self) -> None:
        for size in payload.SIZES:
            payload.write_file(self.folder, size)

    def load(self, what: str, topic: str, *words: object) -> LoadProcess:
        """A load of ``kafka_load.py``, in the interpreter that has Kafka's client."""
        return LoadProcess([str(self._python), str(LOADS), what, self.bootstrap, topic, *map(str, words)])

    def perf(self, tool: str, *words: object) -> LoadProcess:
        """One of Kafka's own Java load tools."""
        return LoadProcess([*self.java("-Xms512m", "-Xmx1g"), f"org.apache.kafka.tools.{tool}", *map(str, words)])

    def produce_java(self, topic: str, size: int, count: int) -> LoadProcess:
        return self.perf(
            *("ProducerPerformance", "--bootstrap-server", self.bootstrap, "--topic", topic, "--num-records", count),
            *("--payload-file", self.folder / f"events-{size}.txt", "--throughput", -1),
            *("--reporting-interval", 600_000, "--command-property"),
            *("acks=all", "linger.ms=5", "batch.size=262144", "buffer.memory=67108864", "enable.idempotence=true"),
        )

    def java(self, *flags: str) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={HERE / 'log4j2.properties'}"
        return ["java", *flags, "-cp", f"{self._jars}/*", logging]
