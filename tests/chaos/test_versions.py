"""Another version's leader, brokers and clients beside those of this version, under load, and a rolling replacement.

``SMQ_OTHER_VERSION`` names the other version (a commit, tag or branch); by default it is the newest release tag.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

import smq
from smq_storage.process.seaweedfs import SeaweedProcess
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
from support.waiting import HANG_GUARD, eventually

sys.path.insert(0, str(Path(__file__).parent))
import log_checker
from faults import ChaosFaults

HERE = Path(__file__).parent
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
        self._faults = ChaosFaults(self.cluster, seaweed, TOPIC, 0, None)

    def version_of(self, process: str) -> str:
        return next(name for name, tree in self._trees.items() if tree == self._chosen[process])

    def check_versions(self) -> None:
        for name, pid in {LEADER: self.cluster.leader_pid, **self.cluster.pids()}.items():
            assert running_version(pid) == self._chosen[name].python_path, name

    # ---- faults and requests, each until the cluster is stable again

    def kill_broker(self, name: str) -> None:
        self._restart_broker(name, signal.SIGKILL)

    def split(self) -> None:
        self._change_layout(self._faults.split)

    def merge(self) -> None:
        self._change_layout(self._faults.merge)

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
        eventually(self._faults.is_stable, what=f"the cluster is stable after: {after}", pause=0.2)
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
        self.acked = [folder / f"writer-{version}.log" for version in clients]
        self.delivered = [folder / f"reader-{version}.log" for version in clients]
        self._writers, self._readers = [], []
        for version, acked, delivered in zip(clients, self.acked, self.delivered, strict=True):
            writer = ("writer_process.py", address, TOPIC, f"w-{version}", PER_SECOND, acked)
            self._writers.append(_client(versions[version], *writer))
            self._readers.append(_client(versions[version], "reader_process.py", address, TOPIC, delivered))

    def wait_for_progress(self) -> None:
        """Every writer gets further acks."""
        before = [self._lines(path) for path in self.acked]

        def progress() -> bool:
            return all(self._lines(path) > count for path, count in zip(self.acked, before, strict=True))

        clients = [*self._writers, *self._readers]
        eventually(lambda: _ended(clients) or progress(), what="further acks for every writer", pause=0.1)
        assert not _ended(clients), "a client ended; its error is above"

    def finish(self) -> None:
        """Ends the writers when all their messages are acked, and the readers when they were given all of them."""
        for writer in self._writers:
            writer.send_signal(signal.SIGTERM)
        for writer in self._writers:
            assert writer.wait(HANG_GUARD) == 0, "a writer failed"
        total = sum(self._lines(path) - 1 for path in self.acked)  # without "end"
        eventually(
            lambda: _ended(self._readers) or all(self._lines(path) >= total for path in self.delivered),
            what=f"readers at the end of {total} messages",
            pause=0.1,
        )
        assert not _ended(self._readers), "a reader ended; its error is above"
        for reader in self._readers:
            reader.send_signal(signal.SIGTERM)
            assert reader.wait(HANG_GUARD) == 0, "a reader failed"

    def kill(self) -> None:
        for process in (*self._writers, *self._readers):
            if process.poll() is None:
                process.kill()
                process.wait()

    @staticmethod
    def _lines(path: Path) -> int:
        return path.read_bytes().count(b"\n") if path.exists() else 0


def _ended(processes: Sequence[subprocess.Popen[bytes]]) -> bool:
    return any(process.poll() is not None for process in processes)


def _client(version: SourceTree, script: str, *arguments: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, str(HERE / script), *map(str, arguments)], env=version.environment)


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
            load.wait_for_progress()
            yield load
        finally:
            load.kill()


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_two_versions_share_the_work(
    name: str, versions: dict[str, SourceTree], seaweed: SeaweedProcess, prefix: str, tmp_path: Path
) -> None:
    """A broker is killed, segments are split and merged, everything is upgraded and rolled back: nothing is lost."""
    deployment = DEPLOYMENTS[name]
    mixed = MixedCluster(tmp_path, seaweed, prefix, deployment, versions)
    with running(mixed, lambda: Load(tmp_path, mixed.cluster.address, deployment.clients, versions)) as load:
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
        load.finish()
    root = f"{seaweed.settings(prefix).url.removeprefix('s3://')}/default/{TOPIC}/{uid}"
    findings = log_checker.check(seaweed.endpoint, root, load.acked, load.delivered)
    print(f"{name}: {findings.messages} messages in {findings.segments} segments, {findings.acked} acked, ", end="")
    print(f"{findings.delivered} delivered; {len(findings.problems)} problems")
    assert findings.acked == findings.messages > 0
    assert not findings.problems, "\n".join(findings.problems[:20])


def disturb(mixed: MixedCluster, load: Load, *, mixes: bool = False) -> None:
    """Kills a broker, splits and merges, each under load.

    ``mixes``: brokers have both versions. Then one of each is killed, as primary and as follower of the other version.
    """
    for broker in BROKERS[:2] if mixes else BROKERS[:1]:
        if mixes:
            mixed.mix_replicas()
        mixed.kill_broker(broker)
        load.wait_for_progress()
    for request in (mixed.split, mixed.merge):
        request()
        load.wait_for_progress()
