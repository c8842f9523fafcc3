"""The processes in containers of Pods, found from outside by their cgroups, and signals to all of them at once."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def signal_at_once(pods: Iterable[Mapping[str, Any]], how: signal.Signals) -> int:
    """Signals every process in every container of these Pods. Returns how many there were.

    The Pods stay: what holds their namespaces is no container of theirs. Raises RuntimeError, and signals nothing, if a
    container has no process here, because the nodes are not on this machine or the container has ended.
    """
    containers = container_ids(pods)
    pids = _processes(containers)
    if len(pids) < len(containers):
        raise RuntimeError(f"found only {len(pids)} processes of {len(containers)} containers on this machine")
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, how)
    return len(pids)


def container_ids(pods: Iterable[Mapping[str, Any]]) -> list[str]:
    """The ids that the container runtime has given to the containers that run now."""
    statuses = (status for pod in pods for status in pod["status"].get("containerStatuses", ()))
    return [status["containerID"].partition("://")[2] for status in statuses if "running" in status["state"]]


def restarts(pods: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """How often the containers of each Pod were restarted, by the Pod's uid."""
    return {
        pod["metadata"]["uid"]: sum(status["restartCount"] for status in pod["status"].get("containerStatuses", ()))
        for pod in pods
    }


def _processes(containers: list[str]) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cgroup"):
        with contextlib.suppress(OSError):
            cgroups = path.read_text()
            if any(container in cgroups for container in containers):
                found.append(int(path.parent.name))
    return found
