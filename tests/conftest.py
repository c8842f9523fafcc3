"""Leaves out the tests that need Kubernetes, or Java, where it is not there, and says so in one line for each.

Under CI they run, and fail. The tests that take long begin first (``support.scheduling``).
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from support.scheduling import FolderScheduling, in_order

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # before gRPC is imported; the package smq says why

# Before any lock is made: locks check the rules of docs/threads.md, here and in the processes that tests start.
os.environ["SEAWEEDMQ_LOCK_CHECKS"] = str(Path(tempfile.mkdtemp(prefix="smq-locks-"), "reports"))

# A slow machine fails no example, and a run repeats the one before. New examples: SMQ_NEW_EXAMPLES=1 make test-quick
settings.register_profile(
    "repeatable",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="SMQ_NEW_EXAMPLES" not in os.environ,
)
settings.load_profile("repeatable")


@dataclass(frozen=True)
class Need:
    """What some tests need. They are left out if it is not ``expected``; ``why`` says how to get it."""

    name: str
    needed_by: Callable[[pytest.Item], bool]
    expected: Callable[[], bool]
    why: str


def _kubernetes_is_expected() -> bool:
    """Also where it is missing, but must be there: the tests then fail and say what is missing."""
    from e2e.cluster.binaries import KUBE, NotBuilt, require

    if os.environ.get("CI") or os.environ.get("SMQ_E2E"):
        return True
    try:
        require(KUBE)
    except NotBuilt:
        return False
    return True


def _java_is_expected() -> bool:
    from support.spark.java import find_java

    return bool(os.environ.get("CI")) or find_java() is not None


def _jars_are_expected() -> bool:
    from tools.spark_jars import find

    return bool(os.environ.get("CI")) or find() is not None


NEEDS = (
    Need(
        "kubernetes",
        lambda item: "api_server" in getattr(item, "fixturenames", ()),
        _kubernetes_is_expected,
        "Kubernetes is not built; run `make cluster-build` once (some minutes, needs Go)",
    ),
    Need(
        "java",
        lambda item: item.get_closest_marker("spark") is not None,
        _java_is_expected,
        "Spark needs Java 17, which is not there; run `make spark-packages` (Debian, root), or set JAVA_HOME",
    ),
    Need(
        "jars",
        lambda item: "s3a" in getattr(item, "fixturenames", ()),
        _jars_are_expected,
        "Spark has no jars to read S3 with; run `make spark-jars` once (needs Maven)",
    ),
)
LEFT_OUT = pytest.StashKey[dict[str, int]]()
OUTPUT = "left_out"


def pytest_configure(config: pytest.Config) -> None:
    config.stash[LEFT_OUT] = {}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for need in NEEDS:
        needing = [item for item in items if need.needed_by(item)]
        if needing and not need.expected():
            config.hook.pytest_deselected(items=needing)
            config.stash[LEFT_OUT][need.name] = len(needing)
            left_out = set(needing)
            items[:] = [item for item in items if item not in left_out]
    items[:] = in_order(items)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leaves out slow tests that would begin after ``SMQ_LAST_SLOW_START``, in seconds since 1970."""
    if item.get_closest_marker("slow") and time.time() > float(os.environ.get("SMQ_LAST_SLOW_START", "inf")):
        pytest.skip("slow, and the time for slow tests was over; run it by `make test SLOW=yes`")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FolderScheduling | None:
    """Only for ``--dist loadfile``, which `make test` asks for."""
    return FolderScheduling(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[OUTPUT] = session.config.stash[LEFT_OUT]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """A worker of pytest-xdist has ended; each of them collects all tests."""
    for name, count in getattr(node, "workeroutput", {}).get(OUTPUT, {}).items():
        known = node.config.stash[LEFT_OUT]
        known[name] = max(known.get(name, 0), count)


@pytest.fixture(autouse=True)
def lock_reports() -> Iterator[None]:
    """Fails a test during which a thread broke a rule of docs/threads.md, also in a process that tests have started."""
    from smq_storage.process.lock_checks import take_reports

    yield
    if reports := take_reports():
        pytest.fail(f"rules of docs/threads.md were broken:\n{reports}", pytrace=False)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for need in NEEDS:
        if count := config.stash[LEFT_OUT].get(need.name):
            terminalreporter.write_line(f"{count} tests were left out because {need.why}", yellow=True)
