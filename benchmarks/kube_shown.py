"""How long the leader needs to show many topics on a real API server, what a restart costs, what it writes at rest.

``python -m benchmarks.kube_shown --topics 1000``: with an API server of its own (``make cluster-build`` first), brokers
and a store in memory, so that the leader with its projections is what is measured. The memory is that of all of them.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

import structlog

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from e2e.cluster.binaries import BIN  # noqa: E402
from e2e.cluster.cluster import Cluster  # noqa: E402
from smq_storage.store import open_store  # noqa: E402
from support import shown  # noqa: E402
from support.bad_manifests import manifest  # noqa: E402
from support.fake_fleet import FakeFleet  # noqa: E402
from support.kube import Kube, documents  # noqa: E402
from support.leader_in_memory import LeaderInMemory  # noqa: E402

SEGMENTS = 2
REST = 20.0
REPORT_EVERY = 1.0
NAMESPACE = "default"


@asynccontextmanager
async def leading(leader: LeaderInMemory) -> AsyncIterator[None]:
    """As tests do it, but with as many reports of brokers as real ones send."""

    async def reports() -> None:
        while True:
            await leader.hear()
            await asyncio.sleep(REPORT_EVERY)

    tasks = [asyncio.create_task(leader.loop.run()), asyncio.create_task(reports())]
    try:
        yield
    finally:
        await leader.loop.stop()
        for task in tasks:
            task.cancel()


def memory() -> int:
    """MiB of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) // 1024


def is_shown(leader: shown.ShownLeader, topics: int) -> bool:
    """Every topic is led, every segment is shown as open, and nothing is to be compared."""
    if sum(run.layout is not None for run in leader.loop.topics.values()) < topics or leader.shown.busy:
        return False
    phases = [s.get("status", {}).get("phase") for s in leader.cache.segments.values()]
    counted = [t for t in leader.cache.topics.values() if t.get("status", {}).get("segments")]
    return phases.count("Open") == topics * SEGMENTS and len(counted) == topics


async def measure(kubeconfig: Path, kube: Kube, topics: int) -> None:
    store = open_store("memory://")
    fleet = FakeFleet(store)
    for number in range(4):
        fleet.add(f"b{number}")

    def make(number: int) -> None:
        made = manifest({"partitions": 16, "segments": {"min": SEGMENTS}}, name=f"t{number}")
        made["metadata"]["namespace"] = NAMESPACE
        kube.create(made)

    before = memory()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(make, range(topics)))
    print(f"{topics} Topics of {SEGMENTS} segments; {before} MiB before")
    for what in ("first start", "restart"):
        leader = shown.ShownLeader(kubeconfig, NAMESPACE, fleet, store)
        began, cpu = time.monotonic(), time.process_time()
        async with shown.showing(leader, settle=5_000_000):
            while not is_shown(leader, topics) or time.monotonic() - began < 6:
                await asyncio.sleep(0.2)
            print(
                f"{what}: {time.monotonic() - began:.1f} s, {time.process_time() - cpu:.1f} s of CPU, "
                f"{leader.api.writes} writes, {memory()} MiB"
            )
            written, cpu = leader.api.writes, time.process_time()
            await asyncio.sleep(REST)
            print(
                f"at rest for {REST:.0f} s: {leader.api.writes - written} writes, "
                f"{time.process_time() - cpu:.2f} s of CPU, {memory()} MiB"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=1000)
    topics: int = parser.parse_args().topics
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    shown.leading = leading  # type: ignore[assignment]
    with tempfile.TemporaryDirectory() as folder, Cluster(Path(folder)) as cluster:
        kube = Kube(cluster.kubeconfig, BIN / "kubectl")
        kube.install_crds(list(documents(ROOT / "crds")))
        asyncio.run(measure(cluster.kubeconfig, kube, topics))


if __name__ == "__main__":
    main()
