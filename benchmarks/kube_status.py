"""Measures ``smq-operator kube`` with many topics: its memory, the time after a restart, and its writes when idle.

``python -m benchmarks.kube_status --topics 1000`` runs a real operator process with its own API server (run ``make
cluster-build`` first) and SeaweedFS. The brokers are the tests' in-memory ones, in this process, behind real ports.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from benchmarks.harness.meter import cpu_seconds, memory_mb  # noqa: E402
from benchmarks.harness.served_fleet import ServedFleet  # noqa: E402
from e2e.cluster.binaries import BIN  # noqa: E402
from e2e.cluster.cluster import Cluster  # noqa: E402
from smq_storage.process.seaweedfs import SeaweedProcess  # noqa: E402
from support.kube.client import KubeClient, documents  # noqa: E402
from support.kube.operator_process import OperatorProcess, topic  # noqa: E402
from support.waiting import eventually  # noqa: E402

API = "seaweedmq.io/v1alpha1"
NAMESPACE = "default"
SEGMENTS = 2
BROKERS = 4
# Topics that are made before all are waited for: the brokers of this process are slower than real ones.
AT_A_TIME = 50
REST = 20.0
# One topic in ten loses its Segments while the operator is away: when they are back, all was compared.
LOST = 10
REQUESTS = re.compile(
    r'apiserver_request_total\{[^}]*resource="(?:topics|segments|events)"[^}]*verb="(?:POST|PUT|PATCH|APPLY|DELETE)"[^}]*\}'
    r" (\S+)"
)


def writes(kube: KubeClient) -> int:
    """How many writes of Topics, Segments and Events the API server was asked for, whoever asked."""
    return sum(int(float(count)) for count in REQUESTS.findall(kube.request("GET", "/metrics")["message"]))


def has_status(kube: KubeClient, topics: int) -> bool:
    """Every topic says that it has its segments, and every segment is shown as open. Asks the API server alone."""
    counts = [t.get("status", {}).get("segments", {}).get("open") for t in kube.list(API, "Topic", NAMESPACE)]
    if counts != [SEGMENTS] * topics:
        return False
    phases = [s.get("status", {}).get("phase") for s in kube.list(API, "Segment", NAMESPACE)]
    return phases.count("Open") == topics * SEGMENTS


def print_figures(operator: OperatorProcess, what: str) -> None:
    pid = operator.process.pid
    pss = re.search(r"^Pss: +(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    assert pss is not None
    rss, anonymous, highest = (memory_mb(pid, line) for line in ("VmRSS", "RssAnon", "VmHWM"))
    print(
        f"{what}: RSS {rss:.0f} MB (highest so far {highest:.0f}), PSS {int(pss[1]) * 1024 / 1e6:.0f}, "
        f"of its own {anonymous:.0f}; {cpu_seconds([pid]):.1f} s of CPU since its start",
        flush=True,
    )


def measure_idle(operator: OperatorProcess, kube: KubeClient) -> None:
    """What it does when there is nothing to do."""
    pid = operator.process.pid
    eventually(lambda: _writes_within(kube, 5.0) == 0, what="it has no more to write")
    written, cpu = writes(kube), cpu_seconds([pid])
    time.sleep(REST)
    spent = cpu_seconds([pid]) - cpu
    print(f"at rest for {REST:.0f} s: {writes(kube) - written} writes, {spent / REST:.2f} cores", flush=True)
    print_figures(operator, "then")


def _writes_within(kube: KubeClient, seconds: float) -> int:
    before = writes(kube)
    time.sleep(seconds)
    return writes(kube) - before


def lose_segments(kube: KubeClient, topics: int) -> int:
    """Deletes the Segments of some topics; how many those are."""
    prefixes = tuple(f"t{number}-" for number in range(0, topics, LOST))
    lost = [s for s in kube.list(API, "Segment", NAMESPACE) if s["metadata"]["name"].startswith(prefixes)]
    for segment in lost:
        kube.delete(segment)
    return len(lost)


def measure(operator: OperatorProcess, kube: KubeClient, topics: int) -> None:
    operator.create_pod()
    operator.start()
    print_figures(operator, "without topics")
    began = time.monotonic()
    for number in range(topics):
        kube.create(topic(NAMESPACE, f"t{number}", partitions=16, segments={"min": SEGMENTS}))
        if (number + 1) % AT_A_TIME == 0 or number + 1 == topics:
            eventually(partial(has_status, kube, number + 1), what="all are shown", pause=0.5)
    print_figures(operator, f"{topics} Topics of {SEGMENTS} segments, shown after {time.monotonic() - began:.0f} s")
    measure_idle(operator, kube)
    for how in ("terminated", "killed"):
        operator.kill() if how == "killed" else operator.terminate()
        lost = lose_segments(kube, topics)
        began = time.monotonic()
        operator.start()
        led = time.monotonic() - began
        eventually(lambda: has_status(kube, topics), what="all are shown again", pause=0.5)
        took = time.monotonic() - began
        print_figures(
            operator, f"{how} and started again: leads after {led:.1f} s, {lost} lost Segments back after {took:.1f} s"
        )
        measure_idle(operator, kube)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=1000)
    topics: int = parser.parse_args().topics
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        cluster = stack.enter_context(Cluster(folder / "cluster"))
        kube = KubeClient(cluster.kubeconfig, BIN / "kubectl")
        kube.install_crds(list(documents(ROOT / "crds")))
        settings = stack.enter_context(SeaweedProcess(folder / "seaweed")).settings("", timeout=15.0)
        operator = OperatorProcess(folder / "operator", kube, settings, NAMESPACE)
        stack.callback(operator.stop)
        stack.enter_context(ServedFleet(settings.open(), BROKERS, operator.listen))
        measure(operator, kube, topics)


if __name__ == "__main__":
    main()
