"""Apache Kafka as a peer: KRaft brokers on loopback, with every acknowledged record on two of them.

Everything else has Kafka's defaults: 1 GB of heap, no fsync, and the batches that its clients make.
"""

from __future__ import annotations

import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from pathlib import Path

from benchmarks.harness import tools
from benchmarks.harness.cluster import wait_for
from benchmarks.harness.meter import Groups, memory_mb
from benchmarks.harness.work_folder import WorkFolder
from benchmarks.peers.kafka_clients import KafkaClients
from smq_storage.process.ports import free_ports

_HEAP = "1g"
_COMMON = """
num.partitions=2
default.replication.factor=2
min.insync.replicas={min_insync}
offsets.topic.replication.factor=2
transaction.state.log.replication.factor=2
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
log.segment.delete.delay.ms=500
"""


class Kafka(KafkaClients, WorkFolder):
    """``brokers`` nodes. With two, only the first is a controller (two voters lose their quorum with either); with
    three each is both, so that any may be killed."""

    name = "kafka"

    def __init__(self, folder: Path, brokers: int = 2, min_insync: int = 2, extra: str = "") -> None:
        WorkFolder.__init__(self, folder)
        KafkaClients.__init__(self, self.folder)
        self.brokers = brokers
        self._min_insync = min_insync
        self._extra = extra
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self.idle: dict[str, float] = {}
        ports = free_ports(2 * brokers)
        self._ports, self._controllers = ports[:brokers], ports[brokers:]

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self._ports)

    def _begin(self) -> None:
        self.write_payload()
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if cluster.startswith("-"):
            cluster = "A" + cluster[1:]  # an id that begins with a dash is taken for an option
        for node in range(1, self.brokers + 1):
            config = self._configure(node)
            tools.run([*self.java("-Xmx256m"), "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(config)])
            self.start(node)
        wait_for(f"{self.brokers} Kafka brokers (see {self.folder})", self._all_up, 90)
        self.idle = {
            "rss_mb": max(memory_mb(pid) for pid in self.groups()["broker"]),
            "own_mb": max(memory_mb(pid, "RssAnon") for pid in self.groups()["broker"]),
        }

    def start(self, node: int) -> None:
        """Starts the node, also again after it was killed. The flags are those of kafka-server-start.sh."""
        flags = [f"-Xms{_HEAP}", f"-Xmx{_HEAP}", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]
        flags += [
            "-XX:InitiatingHeapOccupancyPercent=35",
            "-XX:+ExplicitGCInvokesConcurrent",
            "-Djava.awt.headless=true",
        ]
        with (self.folder / f"node{node}.log").open("ab") as log:
            self._processes[node] = subprocess.Popen(
                [*self.java(*flags), "kafka.Kafka", str(self.folder / f"node{node}.properties")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def kill(self, node: int) -> float:
        """kill -9; returns when, by CLOCK_MONOTONIC."""
        at = time.monotonic()
        self._processes[node].kill()
        self._processes[node].wait()
        return at

    def groups(self) -> Groups:
        return {"broker": [p.pid for p in self._processes.values() if p.poll() is None]}

    def topic(self, partitions: int = 2, replicas: int = 2) -> str:
        words = ("--partitions", partitions, "--replicas", replicas)
        return str(self.load("create", "new", *words).result()["topic"])

    def wait_written(self, topic: str, count: int) -> None:
        """They are."""

    def drop(self, topic: str) -> None:
        """Deletes the topic and waits until its files are about to go, so that no run pays for another's."""
        self.load("drop", topic).result()
        time.sleep(2)

    def warm_up(self, gigabytes: float) -> None:
        """A fresh broker is several times dearer until the JIT has compiled it."""
        for _ in range(max(1, round(gigabytes))):
            for size, count in ((1000, 700_000), (100, 3_000_000)):
                topic = self.topic()
                self.produce_java(topic, size, count).wait()
                self.drop(topic)

    def _configure(self, node: int) -> Path:
        voters = range(1, self.brokers + 1) if self.brokers > 2 else (1,)
        port, controller = self._ports[node - 1], self._controllers[node - 1]
        listeners = f"PLAINTEXT://127.0.0.1:{port}"
        if node in voters:
            listeners += f",CONTROLLER://127.0.0.1:{controller}"
        lines = {
            "node.id": node,
            "process.roles": "broker,controller" if node in voters else "broker",
            "listeners": listeners,
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": ",".join(f"{n}@127.0.0.1:{self._controllers[n - 1]}" for n in voters),
            "log.dirs": self.folder / f"data{node}",
        }
        text = "\n".join(f"{key}={value}" for key, value in lines.items())
        path = self.folder / f"node{node}.properties"
        path.write_text(text + _COMMON.format(min_insync=self._min_insync) + self._extra)
        return path

    def _all_up(self) -> bool:
        for node, process in self._processes.items():
            if process.poll() is not None:
                raise RuntimeError(f"Kafka's node {node} ended at its start; see {self.folder / f'node{node}.log'}")
        return int(self.load("brokers", "-").result()["brokers"]) == self.brokers

    def _end(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()
