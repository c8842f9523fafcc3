"""SeaweedFS's own message queue as a peer: ``weed mq.broker`` behind ``weed mq.kafka.gateway``.

Both are work in progress according to their documentation (4.48), and need some workarounds. The gateway always
advertises port 9093, so it gets that port. Its CreateTopics fails for librdkafka, so ``weed shell`` creates the topics.
It requires the address of a schema registry, although plain bytes need none. Producers must not be idempotent.
"""

from __future__ import annotations

import itertools
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

from benchmarks.harness import tools
from benchmarks.harness.child_process import LoadProcess
from benchmarks.harness.cluster import wait_for
from benchmarks.harness.meter import Groups
from benchmarks.harness.tools import ToolMissing
from benchmarks.harness.work_folder import WorkFolder
from benchmarks.loads import payload
from benchmarks.peers.kafka_clients import LOADS
from smq_core.errors import StoreUnavailable
from smq_storage.process.seaweedfs import find_weed

GATEWAY_PORT = 9093
_TOPICS = itertools.count(1)


class WeedQueue(WorkFolder):
    """Two brokers: the second follows the first; one gateway."""

    name = "weed mq"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._python = tools.python()
        try:
            self._weed = str(find_weed())
        except StoreUnavailable as error:
            raise ToolMissing(error.message) from None
        if not _free(GATEWAY_PORT):
            raise ToolMissing(
                f"port {GATEWAY_PORT} is taken, and the gateway of SeaweedFS' queue tells clients no other"
            )
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._sockets: Path | None = None
        ports = _ports(6)
        self._master, self._volume, self._filer, *self._brokers, self._unused = ports

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{GATEWAY_PORT}"

    def _begin(self) -> None:
        (self.folder / "data").mkdir()
        self._sockets = Path(tempfile.mkdtemp(prefix="smq-weed-"))  # a socket's path must be short
        for size in payload.SIZES:
            payload.write_file(self.folder, size)
        master = f"127.0.0.1:{self._master}"
        self._start(
            *("server", f"-dir={self.folder / 'data'}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"),
            *(f"-master.port={self._master}", f"-volume.port={self._volume}", "-volume.max=0"),
            *("-filer", f"-filer.port={self._filer}", "-s3=false", "-master.telemetry=false"),
            *("-master.volumeSizeLimitMB=1024", f"-filer.localSocket={self._sockets / 'filer.sock'}"),
        )
        wait_for("SeaweedFS' filer", lambda: not _free(self._filer), 60)
        for number, port in enumerate(self._brokers, 1):
            self._start("mq.broker", "-ip=127.0.0.1", f"-port={port}", f"-master={master}", name=f"broker{number}")
        wait_for("SeaweedFS' brokers", lambda: not any(_free(port) for port in self._brokers), 60)
        wait_for("a balancer among SeaweedFS' brokers", self._knows_topics, 60)
        self._start(
            *("mq.kafka.gateway", "-ip=127.0.0.1", f"-port={GATEWAY_PORT}", f"-master={master}"),
            *("-default-partitions=2", f"-schema-registry-url=http://127.0.0.1:{self._unused}"),
        )
        wait_for("SeaweedFS' Kafka gateway", lambda: not _free(GATEWAY_PORT), 60)

    def groups(self) -> Groups:
        """The gateway is counted as broker: it does the protocol's work."""
        living = {name: p.pid for name, p in self._processes.items() if p.poll() is None}
        store = living.pop("server", None)
        return {"broker": list(living.values()), "store": [store] if store else []}

    def topic(self, partitions: int = 2) -> str:
        """A new topic; a broker that has just joined makes the first attempts fail."""
        made: list[str] = []

        def configured() -> bool:
            name = f"bench{next(_TOPICS)}"
            said = self._shell(f"mq.topic.configure -namespace kafka -topic {name} -partitionCount {partitions}")
            if "leader_broker" in said:
                made.append(name)
            return bool(made)

        wait_for("a topic of SeaweedFS' queue", configured, 60)
        return made[0]

    def drop(self, topic: str) -> None:
        """Topics stay: there is no command to delete one."""

    def load(self, what: str, topic: str, *words: object) -> LoadProcess:
        """A load of ``kafka_load.py``."""
        return LoadProcess([str(self._python), str(LOADS), what, self.bootstrap, topic, "--plain", *map(str, words)])

    def _shell(self, command: str) -> str:
        words = [self._weed, "shell", f"-master=127.0.0.1:{self._master}", f"-filer=127.0.0.1:{self._filer}"]
        done = subprocess.run(words, input=command + "\n", capture_output=True, text=True, timeout=60)
        return done.stdout

    def _knows_topics(self) -> bool:
        return "current balancer" in self._shell("mq.topic.list")

    def _start(self, *words: str, name: str | None = None) -> None:
        name = name or words[0]
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [self._weed, *words], cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def _end(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()
        if self._sockets is not None:
            shutil.rmtree(self._sockets, ignore_errors=True)


def _free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def _ports(count: int) -> list[int]:
    """Free ports p for which p + 10000, which SeaweedFS takes too, is a port."""
    found: list[int] = []
    for port in range(21_000, 30_000, 7):
        if _free(port) and _free(port + 10_000):
            found.append(port)
            if len(found) == count:
                break
    return found
