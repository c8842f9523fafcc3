"""A real cluster under load while everything is killed, paused, stopped, cut apart, split, merged and drained.

``make chaos`` runs ten minutes; ``--chaos-seconds`` and ``--chaos-seed`` change that. As root each broker, the leader,
SeaweedFS and the clients are in network namespaces of their own, and any two of them are cut apart, one way or both;
without root everything else is done, on loopback.
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import pytest

from smq_storage.process.seaweedfs import SeaweedProcess
from support.processes.local_cluster import manifest
from support.waiting import HANG_GUARD, eventually

sys.path.insert(0, str(Path(__file__).parent))
import log_checker
from environment import ChaosEnvironment
from faults import ChaosFaults

WRITERS, READERS = 3, 2
PER_SECOND = 400
NOTICED = 1.0
"""Seconds in which the leader must have noticed a fault; only then can be checked whether it is handled."""
pytestmark = [pytest.mark.chaos, pytest.mark.timeout(0)]


def test_nothing_is_lost_repeated_or_reordered(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    seconds = request.config.getoption("--chaos-seconds")
    seed = request.config.getoption("--chaos-seed")
    seed = int(time.time()) if seed is None else seed
    print(f"\nchaos for {seconds:.0f} s, seed {seed}")
    acked = [tmp_path / f"writer-{i}.log" for i in range(WRITERS)]
    delivered = [tmp_path / f"reader-{i}.log" for i in range(READERS)]
    with ChaosEnvironment(tmp_path) as environment:
        if environment.without_network:
            print(f"WITHOUT NETWORK PARTITIONS: {environment.without_network}")
        cluster = environment.cluster
        spec = {"segments": {"min": 2, "max": 16}, "flush": {"bytes": "1Mi", "interval": "2s"}}
        with cluster.connect() as client:
            client.admin().apply(manifest("chaos", **spec))
            eventually(lambda: client.admin().segments("chaos"), what="the first layout")
            topic = client.admin().topic("chaos")
        faults = ChaosFaults(cluster, environment.seaweed, "chaos", seed, environment.network)
        writers = [
            environment.client("writer_process.py", cluster.address, "chaos", f"w{i}", PER_SECOND, path)
            for i, path in enumerate(acked)
        ]
        readers = [environment.client("reader_process.py", cluster.address, "chaos", path) for path in delivered]
        try:
            eventually(lambda: all(path.read_text() for path in acked), what="every writer's first ack")
            run_faults(faults, seconds)
            for process in writers:
                process.send_signal(signal.SIGTERM)
            for process in writers:
                assert process.wait(300) == 0, "a writer failed"
            total = sum(len(path.read_text().splitlines()) - 1 for path in acked)
            eventually(
                lambda: all(len(path.read_text().splitlines()) >= total for path in delivered),
                what=f"readers at the end of {total} messages",
            )
        finally:
            for process in [*writers, *readers]:
                if process.poll() is None:
                    process.send_signal(signal.SIGTERM)
                    process.wait(HANG_GUARD)
        cluster.stop()
        root = f"{bucket_of(environment.seaweed)}/default/chaos/{topic.uid}"
        findings = log_checker.check(environment.seaweed.endpoint, root, acked, delivered)
    print(f"faults: {', '.join(f'{count} {name}' for name, count in faults.counts.most_common())}")
    print(
        f"{findings.messages} messages in {findings.segments} segments, {findings.acked} acked, "
        f"{findings.delivered} delivered to {READERS} readers; {len(findings.problems)} problems"
    )
    assert findings.acked == findings.messages > 0
    assert not findings.problems, "\n".join(findings.problems[:20])
    if environment.without_network:
        pytest.skip(f"all passed, but there were no network partitions: {environment.without_network}")


def run_faults(faults: ChaosFaults, seconds: float) -> None:
    """One fault after the other, each when the one before has been dealt with."""
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        what = faults.step()
        ended = time.monotonic()
        faults.wait(NOTICED)
        eventually(faults.is_stable, what=f"the cluster is stable after: {what}")
        now = time.monotonic()
        print(f"  {now - began:4.0f} s  {what}; settled after {now - ended:.1f} s", flush=True)


def bucket_of(seaweed: SeaweedProcess) -> str:
    """Where the store's root is, as S3 names it."""
    return seaweed.settings("chaos").url.removeprefix("s3://")
