"""A real cluster under load while everything is killed, paused, stopped, split, merged and drained.

``make chaos`` runs ten minutes; ``--chaos-seconds`` and ``--chaos-seed`` change that.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from smq_storage.seaweed import SeaweedProcess
from support.local_cluster import LocalCluster, manifest
from support.waiting import eventually

sys.path.insert(0, str(Path(__file__).parent))
import checker
from faults import Faults

HERE = Path(__file__).parent
WRITERS, READERS = 3, 2
PER_SECOND = 400
NOTICED = 1.0
"""Seconds in which the leader must have noticed a fault; only then it makes sense to ask whether it is dealt with."""
pytestmark = [pytest.mark.chaos, pytest.mark.timeout(0)]


def start(script: str, *arguments: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, str(HERE / script), *map(str, arguments)])


def test_nothing_is_lost_repeated_or_reordered(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    seconds = request.config.getoption("--chaos-seconds")
    seed = request.config.getoption("--chaos-seed")
    seed = int(time.time()) if seed is None else seed
    print(f"\nchaos for {seconds:.0f} s, seed {seed}")
    with SeaweedProcess(tmp_path / "filer") as seaweed:
        arguments = ("--broker-memory", "1Gi")
        with LocalCluster(tmp_path / "cluster", seaweed.settings("chaos"), brokers=4, arguments=arguments) as cluster:
            spec = {"segments": {"min": 2, "max": 16}, "flush": {"bytes": "1Mi", "interval": "2s"}}
            with cluster.connect() as client:
                client.admin().apply(manifest("chaos", **spec))
                eventually(lambda: client.admin().segments("chaos"), 20, what="the first layout")
                topic = client.admin().topic("chaos")
            acked = [tmp_path / f"writer-{i}.log" for i in range(WRITERS)]
            delivered = [tmp_path / f"reader-{i}.log" for i in range(READERS)]
            writers = [
                start("writer.py", cluster.address, "chaos", f"w{i}", PER_SECOND, path) for i, path in enumerate(acked)
            ]
            readers = [start("reader.py", cluster.address, "chaos", path) for path in delivered]
            try:
                done = run_faults(Faults(cluster, seaweed, "chaos", seed), seconds)
                for process in writers:
                    process.send_signal(signal.SIGTERM)
                for process in writers:
                    assert process.wait(300) == 0, "a writer failed"
                total = sum(len(path.read_text().splitlines()) - 1 for path in acked)
                eventually(
                    lambda: all(len(path.read_text().splitlines()) >= total for path in delivered),
                    120,
                    what=f"readers at the end of {total} messages",
                )
            finally:
                for process in [*writers, *readers]:
                    if process.poll() is None:
                        process.send_signal(signal.SIGTERM)
                        process.wait(30)
            cluster.stop()
            root = f"{bucket_of(seaweed)}/default/chaos/{topic.uid}"
            findings = checker.check(seaweed.endpoint, root, acked, delivered)
    print(
        f"{done} faults; {findings.messages} messages in {findings.segments} segments, {findings.acked} acked, "
        f"{findings.delivered} delivered to {READERS} readers"
    )
    assert findings.acked == findings.messages > 0
    assert not findings.problems, "\n".join(findings.problems[:20])


def run_faults(faults: Faults, seconds: float) -> int:
    """One fault after the other, each when the one before has been dealt with."""
    until = time.monotonic() + seconds
    done = 0
    while time.monotonic() < until:
        began = time.monotonic()
        what = faults.step()
        faults.wait(NOTICED)
        eventually(faults.settled, 60, what=f"peace after: {what}")
        print(f"  {what}; settled after {time.monotonic() - began:.1f} s", flush=True)
        done += 1
    return done


def bucket_of(seaweed: SeaweedProcess) -> str:
    """Where the store's root is, as S3 names it."""
    return seaweed.settings("chaos").url.removeprefix("s3://")
