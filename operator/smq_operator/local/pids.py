"""Identifies processes by pid and start time, because the system uses pids again.

The start time is read from /proc rather than by psutil, which converts it to wall time. After the clock was set, psutil
would report another one, and a living broker would be taken for terminated.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import psutil

# Why a pid cannot be watched: nothing has it, or a thread has it now (the last two, depending on the kernel).
NO_PROCESS = (errno.ESRCH, errno.ENOENT, errno.EINVAL)


def start_time(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None if it has ended (a zombie has)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name, in parentheses, may contain anything. The state is the first field after it.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def open_pidfd(pid: int, started: int) -> int | None:
    """A descriptor that becomes readable when the process ends; None if it has ended or its pid is used again."""
    try:
        fd = os.pidfd_open(pid)
    except OSError as error:
        if error.errno in NO_PROCESS:
            return None
        raise
    # Checked after opening, so that it holds for the process that the descriptor stands for.
    if start_time(pid) != started:
        os.close(fd)
        return None
    return fd


def find_by_environment(name: str, value: str) -> list[tuple[int, dict[str, str]]]:
    """The living processes of this user that were started with this variable: pid and environment."""
    return [
        (process.pid, process.info["environ"])
        for process in psutil.process_iter(["environ"])
        if (process.info["environ"] or {}).get(name) == value and start_time(process.pid) is not None
    ]


def oom_kills() -> int:
    """How many processes the system has killed since boot because memory was short; 0 if it does not say."""
    try:
        counters = Path("/proc/vmstat").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in counters.splitlines() if line.startswith("oom_kill ")), 0)
