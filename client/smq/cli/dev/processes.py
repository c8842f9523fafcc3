"""Processes of this machine that `smq dev` started, also those of an earlier run: finds and ends them."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil  # comes with the extra `local`, so it is imported where it is used

# A process's start time shifts when the machine's clock is corrected.
START_TIME_TOLERANCE_SECONDS = 2.0

# The leader sets this in the environment of each broker that it starts.
INCARNATION_VARIABLE = "SMQ_INCARNATION"


def find_process(pid: int, created: float) -> psutil.Process | None:
    """The process with this id if it is still the one that started then, because pids are reused."""
    import psutil

    try:
        process = psutil.Process(pid)
        same = abs(process.create_time() - created) < START_TIME_TOLERANCE_SECONDS
    except psutil.Error:
        return None
    return process if same else None


def find_recorded(recorded: object) -> psutil.Process | None:
    """The process of an entry ``[pid, created]`` of the list of processes, if it runs."""
    if not isinstance(recorded, list):
        return None
    process = find_process(*recorded)
    return process if process is not None and is_alive(process) else None


def find_broker(pid: int, incarnation: str) -> psutil.Process | None:
    """The process with this id if it is the broker of that incarnation."""
    import psutil

    try:
        process = psutil.Process(pid)
        same = process.environ().get(INCARNATION_VARIABLE) == incarnation
    except psutil.Error:
        return None
    return process if same else None


def is_alive(process: psutil.Process) -> bool:
    import psutil

    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def terminate(process: subprocess.Popen[bytes], timeout: float) -> bool:
    """Ends a child. True if it had to be killed."""
    process.terminate()
    try:
        process.wait(timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return True
    return False


def terminate_processes(processes: Sequence[psutil.Process], timeout: float) -> list[int]:
    """Ends processes that are no children of this one, together. Returns those that were killed after ``timeout``."""
    import psutil

    deadline, killed = time.monotonic() + timeout, []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            # Only one SIGTERM, because a second one makes the leader and the brokers stop at once.
            process.terminate()
    for process in processes:
        while is_alive(process):
            if time.monotonic() > deadline:
                if process.pid not in killed:
                    killed.append(process.pid)
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            time.sleep(0.1)
    return killed
