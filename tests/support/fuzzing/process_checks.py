"""What the processes of a release look like after an attack."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import psutil

from support.fuzzing.process_attack import ProcessAttack
from support.processes.local_cluster import LocalCluster
from support.processes.secure_cluster import SecureCluster
from support.waiting import HANG_GUARD

# What a process may take for an attack: buffers of connections, caches, memory that its allocator keeps.
ALLOWED_BYTES = 160 << 20
# Of one process: some hundred lines of at most some kilobytes in ten seconds, however many requests were refused.
MAX_LOG_BYTES, MAX_LOG_BYTES_PER_SECOND = 400_000, 10_000
MISTAKES = {"request.failed", "relay.failed", "task.failed", "replication.failed", "http.request_failed"}


def attack(cluster: LocalCluster, topic: str, *, seed: int, seconds: float) -> None:
    """Attacks the processes, and checks that they go on with little more memory and logs in order."""
    identity = f"mallory-{topic}"
    cluster.create(topic)
    if isinstance(cluster, SecureCluster):
        cluster.token_file(identity)
        cluster.allow(identity, {"topics": [topic], "verbs": ["produce", "consume"], "consumerGroups": ["g"]})
    attackers = ProcessAttack(cluster, topic, identity, seed)
    attackers.run(0.2)  # so that each process has what the first request of a kind makes it load
    before = memory(cluster)
    attackers.run(seconds)
    print(f"sent: {dict(attackers.sent)}")
    assert all(count > 10 for count in attackers.sent.values()), attackers.sent
    check_memory(cluster, before)
    with cluster.connect() as client, client.producer(topic) as producer:
        producer.send(b"after").result(HANG_GUARD)
    check_logs(cluster, seconds)


def memory(cluster: LocalCluster) -> dict[tuple[str, int], int]:
    """The resident bytes of each process, by name and pid."""
    pids = {"leader": cluster.leader_pid} | cluster.pids()
    return {(name, pid): psutil.Process(pid).memory_info().rss for name, pid in pids.items()}


def check_memory(cluster: LocalCluster, before: dict[tuple[str, int], int]) -> None:
    after = memory(cluster)
    assert after.keys() == before.keys(), "a process was replaced"
    grown = {name: (after[name] - before[name]) >> 20 for name in after}
    print(f"grown by MiB: {grown}")
    assert max(grown.values()) < ALLOWED_BYTES >> 20, f"MiB: {grown}"


def check_logs(cluster: LocalCluster, seconds: float) -> None:
    """Each line is one that the process wrote by itself, and has no secret. ``seconds`` is how long the attack was."""
    allowed = MAX_LOG_BYTES + seconds * MAX_LOG_BYTES_PER_SECOND
    secrets = [path.read_text().strip() for path in cluster.folder.rglob("*.token")]
    for path in _logs(cluster):
        for line in path.read_bytes().splitlines():
            text = line.decode()  # strictly
            assert text.isprintable(), f"{path.name}: {line!r}"
            assert not [secret for secret in secrets if secret in text] and "PRIVATE KEY" not in text
            assert json.loads(text)["event"] not in MISTAKES, text
        size = path.stat().st_size
        assert size < allowed, f"{path.name} has {size:,} bytes"


def _logs(cluster: LocalCluster) -> Iterator[Path]:
    yield cluster.folder / "leader.log"
    yield from (cluster.folder / "logs").glob("*.log")
