"""Another version's leader, brokers and clients beside those of this version, under load, and a rolling replacement.

``SMQ_OTHER_VERSION`` names the other version (a commit, tag or branch); by default it is the newest release tag.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

import smq
from smq_proto.wire import PROTOCOL
from smq_storage.process.seaweedfs import SeaweedProcess
from support.data.message_ledger import read_back
from support.processes.local_cluster import LocalCluster, manifest
from support.processes.versions import (
    LEADER,
    THIS_VERSION,
    VARIABLE,
    ProcessVersions,
    SourceTree,
    extract_version,
    other_commit,
    running_version,
)
from support.waiting import eventually

sys.path.insert(0, str(Path(__file__).parent))
from client_processes import ClientProcesses
from faults.layout_faults import LayoutFaults

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(0)]

THIS, OTHER = "this", "other"
TOPIC = "versions"
BROKERS = ("broker-1", "broker-2", "broker-3")
PER_SECOND = 200


@dataclass(frozen=True, slots=True)
class Deployment:
    """Which version each process starts with. There is a writer and a reader for each of ``clients``."""

    leader: str
    brokers: tuple[str, str, str]
    clients: tuple[str, ...]


DEPLOYMENTS = {
    "the other version's leader, mixed brokers": Deployment(OTHER, (THIS, OTHER, THIS), (THIS, OTHER)),
    "this version's leader, mixed brokers": Deployment(THIS, (OTHER, THIS, OTHER), (THIS, OTHER)),
    "the other version's clients": Deployment(THIS, (THIS, THIS, THIS), (OTHER,)),
    "this version's clients": Deployment(OTHER, (OTHER, OTHER, OTHER), (THIS,)),
}


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, SourceTree]:
    commit = other_commit()
    if commit is None:
        pytest.skip(f"there is no release tag: set {VARIABLE} to the commit whose processes run beside this version's")
    found = {THIS: THIS_VERSION, OTHER: extract_version(commit, tmp_path_factory.mktemp("other-version"))}
    for version in found.values():
        version.check()
    protocol = found[OTHER].protocol()
    if abs(protocol - PROTOCOL) > 1:
        pytest.skip(f"{commit} has protocol {protocol} and this version {PROTOCOL}: they refuse each other")
    print(f"\nthe other version is {commit}")
    return found


class MixedCluster:
    """A local cluster whose processes run the versions that are chosen for them."""

    def __init__(
        self, folder: Path, seaweed: SeaweedProcess, root: str, deployment: Deployment, versions: dict[str, SourceTree]
    ) -> None:
        self._trees = versions
        self._chosen = ProcessVersions(folder / "versions")
        for name, version in zip((LEADER, *BROKERS), (deployment.leader, *deployment.brokers), strict=True):
            self._chosen.choose(name, versions[version])
        self.cluster = LocalCluster(
            folder / "cluster",
            seaweed.settings(root),
            brokers=len(BROKERS),
            arguments=("--broker-memory", "1Gi", "--broker-wrapper", str(self._chosen.script)),
            wrapper=[str(self._chosen.script)],
        )
        self._layout = LayoutFaults(self.cluster, {TOPIC: 2})
        self._random = random.Random(0)

    def version_of(self, process: str) -> str:
        return next(name for name, tree in self._trees.items() if tree == self._chosen[process])

    def check_versions(self) -> None:
        for name, pid in {LEADER: self.cluster.leader_pid, **self.cluster.pids()}.items():
            assert running_version(pid) == self._chosen[name].python_path, name

    # ---- faults and requests, each until the cluster is stable again

    def kill_broker(self, name: str) -> None:
        self._restart_broker(name, signal.SIGKILL)

    def split(self) -> None:
        self._change_layout(lambda: self._layout.split(self._random))

    def merge(self) -> None:
        self._change_layout(lambda: self._layout.merge(self._random))

    def _change_layout(self, request: Callable[[], str]) -> None:
        before = {segment.name for segment in self._segments()}
        done = eventually(request, what="a request that is possible", pause=0.2)
        eventually(lambda: {segment.name for segment in self._segments()} != before, what=done, pause=0.1)
        self.wait_until_stable(done)

    def _restart_broker(self, name: str, with_signal: signal.Signals) -> None:
        before = self._incarnations()[name]
        os.kill(self.cluster.pids()[name], with_signal)
        what = f"{name} is alive again after {with_signal.name}"
        eventually(lambda: self._incarnations().get(name, before) != before, what=what, pause=0.1)
        self.wait_until_stable(what)
        self.check_versions()

    def wait_until_stable(self, after: str) -> None:
        eventually(self._layout.is_stable, what=f"the cluster is stable after: {after}", pause=0.2)
        print(f"  {after}", flush=True)

    # ---- replacements

    def replace_broker(self, name: str, version: str) -> None:
        self._chosen.choose(name, self._trees[version])
        self._restart_broker(name, signal.SIGTERM)

    def replace_leader(self, version: str) -> None:
        self._chosen.choose(LEADER, self._trees[version])
        self.cluster.kill_leader()
        self.cluster.start()
        self.wait_until_stable(f"the leader is {version}")
        self.check_versions()

    def mix_replicas(self) -> None:
        """Moves segments until there is a follower of each version whose primary is of the other version."""

        def mixed() -> bool:
            pairs = {tuple(map(self.version_of, segment.brokers)) for segment in self._segments()}
            if {(THIS, OTHER), (OTHER, THIS)} <= pairs:
                return True
            self._change_layout(self._move)
            return False

        eventually(mixed, what="primaries with followers of the other version, both directions")

    def _move(self) -> str:
        """Moves the oldest segment."""
        oldest = min(self._segments(), key=lambda segment: segment.number)
        with self.cluster.connect() as client:
            client.admin().move(TOPIC, oldest.name)
        return f"move {oldest.name}"

    # ---- state

    def _segments(self) -> list[smq.SegmentInfo]:
        with self.cluster.connect() as client:
            return client.admin().segments(TOPIC)

    def _incarnations(self) -> dict[str, str]:
        with self.cluster.connect() as client:
            return {b.name: b.incarnation for b in client.admin().brokers() if b.state == "alive"}


class Load:
    """Writers and readers as processes, one of each for each version; their logs are in ``folder``."""

    def __init__(self, folder: Path, address: str, clients: tuple[str, ...], versions: dict[str, SourceTree]) -> None:
        self._version = versions[clients[0]]
        self.clients = ClientProcesses(folder, address, TOPIC, self._start)
        for version in clients:
            self._version = versions[version]
            self.clients.start_writer(f"w-{version}", PER_SECOND)
            self.clients.start_reader(f"r-{version}")

    def _start(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, env=self._version.environment)


@contextmanager
def running(mixed: MixedCluster, make_load: Callable[[], Load]) -> Iterator[Load]:
    """The cluster with a topic of at least four segments, under load."""
    spec = {"segments": {"min": 4, "max": 16}, "flush": {"bytes": "1Mi", "interval": "2s"}}
    with mixed.cluster as cluster:
        mixed.check_versions()
        with cluster.connect() as client:
            client.admin().apply(manifest(TOPIC, **spec))
        mixed.wait_until_stable("the topic was created")
        load = make_load()
        try:
            load.clients.wait_for_acks()
            yield load
        finally:
            load.clients.kill()


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_two_versions_share_the_work(
    name: str, versions: dict[str, SourceTree], seaweed: SeaweedProcess, prefix: str, tmp_path: Path
) -> None:
    """A broker is killed, segments are split and merged, everything is upgraded and rolled back: nothing is lost."""
    deployment = DEPLOYMENTS[name]
    mixed = MixedCluster(tmp_path, seaweed, prefix, deployment, versions)
    with running(
        mixed, lambda: Load(tmp_path / "clients", mixed.cluster.address, deployment.clients, versions)
    ) as load:
        with mixed.cluster.connect() as client:
            uid = client.admin().topic(TOPIC).uid
        disturb(mixed, load, mixes=len(set(deployment.brokers)) > 1)
        mixed.replace_leader(THIS)
        for broker in BROKERS:
            mixed.replace_broker(broker, THIS)
        disturb(mixed, load)
        for broker in BROKERS:
            mixed.replace_broker(broker, OTHER)
        mixed.replace_leader(OTHER)
        disturb(mixed, load)
        load.clients.finish()
        mixed.cluster.stop()
        load.clients.check(seaweed.settings(prefix), uid)


def disturb(mixed: MixedCluster, load: Load, *, mixes: bool = False) -> None:
    """Kills a broker, splits and merges, each under load.

    ``mixes``: brokers have both versions. Then one of each is killed, as primary and as follower of the other version.
    """
    for broker in BROKERS[:2] if mixes else BROKERS[:1]:
        if mixes:
            mixed.mix_replicas()
        mixed.kill_broker(broker)
        load.clients.wait_for_acks()
    for request in (mixed.split, mixed.merge):
        request()
        load.clients.wait_for_acks()


def test_references_wait_for_older_brokers(
    versions: dict[str, SourceTree], seaweed: SeaweedProcess, prefix: str, tmp_path: Path
) -> None:
    """A broker that knows no references, or whose follower does not, takes none, and the producer learns why."""
    if (versions[OTHER].root / "broker/smq_broker/references").exists():
        pytest.skip("the other version knows references")
    mixed = MixedCluster(tmp_path, seaweed, prefix, Deployment(OTHER, (THIS, OTHER, OTHER), ()), versions)
    table = pa.table({"key": [b"k%d" % n for n in range(1000)], "value": [b"v%d" % n for n in range(1000)]})
    with mixed.cluster as cluster, cluster.connect() as client:
        client.admin().apply(manifest(TOPIC, segments={"min": 4, "max": 4}))
        mixed.wait_until_stable("the topic was created")
        with (
            pytest.raises(smq.DeliveryTimeout, match=r"knows (no|neither) references"),
            client.producer(TOPIC, timeout=10.0) as refused,
        ):
            refused.write(table, by_reference=True).result()
        for broker in BROKERS:
            mixed.replace_broker(broker, THIS)
        with client.producer(TOPIC) as producer:
            receipt = producer.write(table, by_reference=True).result()
        assert len(receipt) == 1000
        mixed.replace_leader(THIS)
        with client.consumer(TOPIC) as consumer:
            values = [v for batch in read_back(consumer, 1000) for v in batch.table.column("value").to_pylist()]
        assert sorted(values) == sorted(table.column("value").to_pylist())
