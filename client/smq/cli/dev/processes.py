"""Ends processes that `smq dev` started, also those of an earlier run."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Sequence

from smq_storage.process.pids import ProcessId


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


def terminate_processes(processes: Sequence[ProcessId], timeout: float) -> list[int]:
    """Ends processes that are no children of this one, together. Returns those that were killed after ``timeout``."""
    deadline, killed = time.monotonic() + timeout, []
    for process in processes:
        # Only one SIGTERM, because a second one makes the leader and the brokers stop at once.
        process.send(signal.SIGTERM)
    for process in processes:
        while process.is_alive:
            if time.monotonic() > deadline:
                if process.pid not in killed:
                    killed.append(process.pid)
                process.send(signal.SIGKILL)
            time.sleep(0.1)
    return killed
