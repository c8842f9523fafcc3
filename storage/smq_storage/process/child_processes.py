"""Processes that work for this one: how they start, and how they end."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from smq_storage.process.pids import ProcessId

_CHECK_INTERVAL_SECONDS = 0.1


def start_child(
    command: Sequence[str], log: Path, *, environment: Mapping[str, str] | None = None, folder: Path | None = None
) -> subprocess.Popen[bytes]:
    """Starts a process in a folder, and appends what it prints to a log.

    It gets a session, because Ctrl-C in the terminal and the terminal's end are for this process, which stops its
    children in order.
    """
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def end_child(process: subprocess.Popen[bytes], timeout: float, how: signal.Signals = signal.SIGTERM) -> bool:
    """Signals a child, and kills it after ``timeout`` seconds. True if that was necessary."""
    with suppress(ProcessLookupError):
        process.send_signal(how)
    try:
        process.wait(timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return True
    return False


def end_processes(processes: Sequence[ProcessId], timeout: float) -> list[int]:
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
            time.sleep(_CHECK_INTERVAL_SECONDS)
    return killed
