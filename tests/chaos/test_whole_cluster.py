"""``kill -9`` of all processes at once, again and again under load: nothing is lost, doubled or reordered.

``SMQ_WHOLE_CLUSTER_KILLS=20`` is how often. What is killed: the leader and all brokers, the same and SeaweedFS, both
replicas of every segment, or these after the leader was paused, so that it knows less. The processes start again on the
same folders.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import smq
from smq_storage.process.seaweedfs import SeaweedProcess
from support.processes.local_cluster import LocalCluster
from support.waiting import eventually

sys.path.insert(0, str(Path(__file__).parent))
from client_processes import ClientProcesses

KILLS = int(os.environ.get("SMQ_WHOLE_CLUSTER_KILLS", "3"))
TOPIC = "flood"
PER_SECOND = 400
PAUSE = 5.0
pytestmark = [pytest.mark.chaos, pytest.mark.timeout(0)]


def kill_processes(cluster: LocalCluster, seaweed: SeaweedProcess) -> None:
    """The leader and all brokers."""
    kill_at_once([cluster.leader_pid, *cluster.pids().values()])
    cluster.kill_leader()
    cluster.start(wait=False)


def kill_processes_and_filer(cluster: LocalCluster, seaweed: SeaweedProcess) -> None:
    """The same, and SeaweedFS."""
    filer = seaweed.pid
    assert filer is not None
    kill_at_once([filer, cluster.leader_pid, *cluster.pids().values()])
    seaweed.kill()
    cluster.kill_leader()
    seaweed.start()
    cluster.start(wait=False)


def kill_replicas(cluster: LocalCluster, seaweed: SeaweedProcess) -> None:
    """All replicas of the topic's segments."""
    kill_at_once(list(replicas(cluster)))


def pause_leader_and_kill_replicas(cluster: LocalCluster, seaweed: SeaweedProcess) -> None:
    """All replicas, when the leader has heard nothing of them for some seconds."""
    pids = replicas(cluster)
    os.kill(cluster.leader_pid, signal.SIGSTOP)
    try:
        time.sleep(PAUSE)
        kill_at_once(list(pids))
    finally:
        os.kill(cluster.leader_pid, signal.SIGCONT)


def replicas(cluster: LocalCluster) -> set[int]:
    with cluster.connect() as client:
        names = {name for segment in client.admin().segments(TOPIC) for name in segment.brokers}
    pids = cluster.pids()
    return {pids[name] for name in names}


def kill_at_once(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    "kill", [kill_processes, kill_processes_and_filer, kill_replicas, pause_leader_and_kill_replicas]
)
@pytest.mark.parametrize("copies", [2, 3])
def test_nothing_is_lost(
    kill: Callable[[LocalCluster, SeaweedProcess], None], copies: int, prefix: str, tmp_path: Path
) -> None:
    draw = random.Random(0)
    with (
        SeaweedProcess(tmp_path / "filer") as seaweed,
        LocalCluster(tmp_path / "cluster", seaweed.settings(prefix), brokers=4) as cluster,
    ):
        cluster.create(TOPIC, replicas=copies, segments={"min": 2, "max": 16}, flush={"interval": "10s"})
        clients = ClientProcesses(tmp_path / "clients", cluster.address, TOPIC)
        try:
            for number in range(2):
                clients.start_writer(f"w{number}", PER_SECOND, with_id=bool(number))
                clients.start_member(f"m{number}")
            clients.start_reader("early")
            for number in range(KILLS):
                clients.wait_for_acks()
                time.sleep(draw.uniform(0.5, 5.0))  # how much of the tail is not in a chunk yet
                began = time.monotonic()
                kill(cluster, seaweed)
                clients.wait_for_acks()
                print(f"  {number + 1}: acks again after {time.monotonic() - began:.1f} s", flush=True)
                eventually(lambda: is_stable(cluster, copies), what="the cluster is stable", pause=0.2)
            clients.finish()
        finally:
            clients.kill()
        with cluster.connect() as client:
            uid = client.admin().topic(TOPIC).uid
        cluster.stop()
        clients.check(seaweed.settings(prefix), uid)


def is_stable(cluster: LocalCluster, copies: int) -> bool:
    """Every segment is open on brokers that are alive."""
    try:
        with cluster.connect() as client:
            segments = client.admin().segments(TOPIC)
            alive = [broker for broker in client.admin().brokers() if broker.state == "alive"]
    except smq.SmqError:
        return False
    held = [load.segment for broker in alive for load in broker.segments if load.state == "open"]
    return bool(segments) and all(s.phase == "open" and held.count(s.name) == copies for s in segments)
