"""A real cluster for a measurement: SeaweedFS, a leader and brokers as processes on loopback, in their own folder."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import smq
from benchmarks.harness.child_process import ROOT
from benchmarks.harness.meter import Groups
from benchmarks.harness.work_folder import WorkFolder
from smq_storage.process.ports import are_free, free_port, free_ports
from smq_storage.process.seaweedfs import HOST, SeaweedProcess

_TOPICS = itertools.count(1)
REQUESTS_METRIC = "SeaweedFS_s3_request_total{"

# A measurement must not be disturbed by a split or a roll that it did not ask for.
_MANIFEST = """
apiVersion: seaweedmq.io/v1alpha1
kind: Topic
metadata: {{name: {name}}}
spec:
  partitions: {partitions}
  partitioner: {partitioner}
  durability: Replicated
  replicas: 2
  segments: {{min: {segments}, max: {most}}}
  scaling: {scaling}
  flush: {{bytes: {flush_bytes}, interval: {flush_interval}}}
  roll: {{bytes: 1Ti, age: 240h}}
{columns}"""
# ``scaling`` of a topic whose load changes nothing.
NEVER = "{target: {messagesPerSecond: 1000000000, bytesPerSecond: 1Ti}, splitAfter: 1h, mergeAfter: 24h}"


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """``memory`` is each broker's memory limit. ``kafka``: brokers listen for Kafka clients."""

    brokers: int = 2
    memory: str = "1Gi"
    journal: bool = True
    secure: bool = False
    kafka: bool = False


def wait_for(what: str, condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Raises TimeoutError, naming ``what``."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.05)


class BenchmarkCluster(WorkFolder):
    """A context manager."""

    def __init__(self, folder: Path, spec: ClusterSpec) -> None:
        super().__init__(folder)
        self.spec = spec
        leader_port, self._metrics_port = free_ports(2)
        self.leader = f"127.0.0.1:{leader_port}"
        self.seaweed = SeaweedProcess(self.folder / "seaweedfs", metrics_port=self._metrics_port)
        self.kafka = f"127.0.0.1:{_first_port(spec.brokers)}" if spec.kafka else ""
        """The first broker's address for Kafka clients."""
        self._operator: subprocess.Popen[bytes] | None = None
        self._client: smq.Client | None = None

    # ---- life

    def _begin(self) -> None:
        (self.folder / "seaweedfs").mkdir()
        self.seaweed.start()
        self._start_operator()
        if self.spec.secure:
            keys = self.folder / "local" / "security"
            wait_for("the keys of the release", (keys / "admin.token").exists)
            os.environ |= {"SMQ_CA_FILE": str(keys / "ca.crt"), "SMQ_TOKEN_FILE": str(keys / "admin.token")}
        self._client = smq.connect(self.leader, timeout=20)
        wait_for(f"{self.spec.brokers} brokers alive (see {self.folder})", self._all_alive)

    def _start_operator(self) -> None:
        settings = self.seaweed.settings("bench")
        words = ["local", "--dir", str(self.folder / "local"), "--listen", self.leader]
        words += ["--filer-url", settings.url, "--filer-endpoint", self.seaweed.endpoint]
        words += ["--brokers", str(self.spec.brokers), "--broker-memory", self.spec.memory]
        words += [] if self.spec.journal else ["--no-journal"]
        words += ["--kafka", self.kafka] if self.kafka else []
        words += ["--security=required"] if self.spec.secure else []
        with (self.folder / "operator.log").open("ab") as log:
            self._operator = subprocess.Popen(
                [sys.executable, "-m", "smq_operator.main", *words],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _end(self) -> None:
        if self._client is not None:
            self._client.close()
        for variable in ("SMQ_CA_FILE", "SMQ_TOKEN_FILE") if self.spec.secure else ():
            os.environ.pop(variable, None)
        # Nothing of this data is needed again: the end need not be a graceful one.
        left = list(self.broker_pids().values())
        if self._operator is not None:
            self._operator.kill()
            self._operator.wait()
        for pid in left:
            _kill(pid)
        self.seaweed.kill()

    # ---- what is asked of it

    @property
    def client(self) -> smq.Client:
        assert self._client is not None, "the cluster is not running"
        return self._client

    def broker_pids(self) -> dict[str, int]:
        """The living broker processes by name, as the local adapter has written them down."""
        found = {}
        for path in sorted((self.folder / "local" / "brokers").glob("*.json")):
            try:
                pid = int(json.loads(path.read_text())["pid"])
            except (ValueError, KeyError, OSError):
                continue
            if Path(f"/proc/{pid}").exists():
                found[path.stem] = pid
        return found

    def groups(self) -> Groups:
        """For a Meter: brokers, the store, the leader."""
        store, leader = self.seaweed.pid, self._operator.pid if self._operator else None
        return {
            "broker": list(self.broker_pids().values()),
            "store": [store] if store else [],
            "leader": [leader] if leader else [],
        }

    def store_requests(self) -> int:
        """How many requests the filer has answered so far, whosever they were."""
        url = f"http://{HOST}:{self._metrics_port}/metrics"
        with urllib.request.urlopen(url, timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return round(sum(float(it.rpartition(" ")[2]) for it in lines if it.startswith(REQUESTS_METRIC)))

    def topic(
        self,
        segments: int = 1,
        *,
        most: int | None = None,
        scaling: str = NEVER,
        flush_bytes: str = "32Mi",
        flush_interval: str = "10s",
        partitions: int = 1024,
        partitioner: str = "Hash",
        columns: str = "",
    ) -> str:
        """Makes a topic with that number of open segments and waits until all of them accept messages.

        It may have up to ``most`` segments; by default their number cannot change. ``columns``: the lines of its spec
        that give it a schema.
        """
        name = f"bench{next(_TOPICS)}"
        manifest = _MANIFEST.format(
            name=name,
            segments=segments,
            most=max(segments, most or 0),
            scaling=scaling,
            flush_bytes=flush_bytes,
            flush_interval=flush_interval,
            partitions=partitions,
            partitioner=partitioner,
            columns=columns,
        )
        admin = self.client.admin()
        admin.apply(manifest)
        wait_for(f"{segments} open segments of {name}", lambda: self._open(name) >= segments, 120)
        replicas = 2 * segments
        wait_for(f"{replicas} open replicas of {name}", lambda: self._replicas(name) >= replicas, 120)
        return name

    def primary(self, topic: str) -> str:
        """The name of the broker that leads the topic's first open segment."""
        return next(s.brokers[0] for s in self.client.admin().segments(topic) if s.phase == "open")

    def quiet(self, topic: str) -> bool:
        """True when all brokers live, and every segment is open, with both its replicas and the newest schema."""
        try:
            found = self.client.admin().topic(topic)
            brokers = [b for b in self.client.admin().brokers() if b.state == "alive"]
        except smq.SmqError:
            return False
        held = Counter(load.segment for b in brokers for load in b.segments if load.state == "open")
        whole = all(
            s.phase == "open"
            and not s.successors
            and held[s.name] == len(s.brokers) == 2
            and s.schema_version == found.schema_version
            for s in found.segments
        )
        return bool(found.segments) and whole and len(brokers) >= self.spec.brokers

    def kill(self, broker: str) -> float:
        """kill -9; returns when, by CLOCK_MONOTONIC."""
        pid = self.broker_pids()[broker]
        at = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        return at

    def unflushed(self, topic: str) -> int:
        """Messages of the topic that are durable in memory, but not in the filer yet."""
        return sum(
            load.end - load.chain_end
            for broker in self.client.admin().brokers()
            if broker.state == "alive"
            for load in broker.segments
            if load.topic.endswith(f"/{topic}") and load.primary
        )

    def reported(self, topic: str) -> int:
        """Messages that the primaries of the topic's living segments have reported."""
        return sum(
            load.end
            for broker in self.client.admin().brokers()
            for load in broker.segments
            if load.topic.endswith(f"/{topic}") and load.primary
        )

    def wait_flushed(self, topic: str, messages: int, seconds: float = 300.0) -> None:
        """Until ``messages`` have been reported and all of them are in the filer."""

        def flushed() -> bool:
            return self.reported(topic) >= messages and self.unflushed(topic) == 0

        wait_for(f"{topic} flushed", flushed, seconds)

    def _all_alive(self) -> bool:
        if self._operator is not None and self._operator.poll() is not None:
            raise RuntimeError(f"the leader ended at its start; see {self.folder / 'operator.log'}")
        try:
            alive = [b for b in self.client.admin().brokers() if b.state == "alive"]
        except smq.SmqError:
            return False
        return len(alive) == self.spec.brokers

    def _open(self, topic: str) -> int:
        try:
            return sum(s.phase == "open" for s in self.client.admin().segments(topic))
        except smq.SmqError:
            return 0

    def _replicas(self, topic: str) -> int:
        """Replicas that their brokers have reported open."""
        return sum(
            load.state == "open"
            for broker in self.client.admin().brokers()
            for load in broker.segments
            if load.topic.endswith(f"/{topic}")
        )


def _first_port(count: int) -> int:
    """A free port that is followed by free ones, ``count`` in all."""
    while not are_free(range(port := free_port(), port + count)):
        pass
    return port


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    wait_for(f"the end of process {pid}", lambda: not Path(f"/proc/{pid}").exists(), 10)
