"""Leaves out the tests that need Kubernetes where it is not built, and says so in one line.

Under CI they run, and fail.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# A slow machine fails no example, and a run repeats the one before. New examples: SMQ_NEW_EXAMPLES=1 make test-quick
settings.register_profile(
    "repeatable",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="SMQ_NEW_EXAMPLES" not in os.environ,
)
settings.load_profile("repeatable")

LEFT_OUT = pytest.StashKey[int]()
OUTPUT = "needing_kubernetes"


def pytest_configure(config: pytest.Config) -> None:
    config.stash[LEFT_OUT] = 0


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    needing = [item for item in items if "api_server" in getattr(item, "fixturenames", ())]
    if needing and not _kubernetes_is_expected():
        config.hook.pytest_deselected(items=needing)
        config.stash[LEFT_OUT] = len(needing)
        left_out = set(needing)
        items[:] = [item for item in items if item not in left_out]


def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[OUTPUT] = session.config.stash[LEFT_OUT]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """A worker of pytest-xdist has ended; each of them collects all tests."""
    output = getattr(node, "workeroutput", {})
    node.config.stash[LEFT_OUT] = max(node.config.stash[LEFT_OUT], output.get(OUTPUT, 0))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if count := config.stash[LEFT_OUT]:
        terminalreporter.write_line(
            f"{count} tests were left out because Kubernetes is not built; "
            "run `make cluster-build` once (some minutes, needs Go)",
            yellow=True,
        )


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
