"""Identifies processes by pid and start time, because the system uses pids again.

The start time is that of /proc, in clock ticks since boot. A wall time would change when the clock is set, and a living
process would be taken for terminated.
"""

from __future__ import annotations

import errno
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

from smq_storage.process.boot import boot_id

# Of a broker: the folder of the leader that started it, by which the broker is found if its record is lost.
FOLDER_VARIABLE = "SMQ_BROKER_OF"

# Why a pid cannot be watched: nothing has it, or a thread has it now (the last two, depending on the kernel).
NO_PROCESS = (errno.ESRCH, errno.ENOENT, errno.EINVAL)


class ProcessId(NamedTuple):
    """One process, whether it still runs or not. ``started`` is in clock ticks since the boot."""

    pid: int
    started: int
    boot: str

    @classmethod
    def of(cls, pid: int) -> Self | None:
        """The process that has the pid now; None if none has."""
        started = start_time(pid)
        return cls(pid, started, boot_id()) if started is not None else None

    @property
    def is_alive(self) -> bool:
        return self.boot == boot_id() and start_time(self.pid) == self.started

    def send(self, what: signal.Signals) -> None:
        """Signals the process unless it has ended."""
        fd = open_pidfd(self.pid, self.started) if self.boot == boot_id() else None
        if fd is None:
            return
        try:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(fd, what)
        finally:
            os.close(fd)


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
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # another user's, or it ended just now
            entries = os.fsdecode((folder / "environ").read_bytes()).split("\0")
            environment = dict(entry.split("=", 1) for entry in entries if "=" in entry)
            if environment.get(name) == value and start_time(int(folder.name)) is not None:
                found.append((int(folder.name), environment))
    return found


def oom_kills() -> int:
    """How many processes the system has killed since boot because memory was short; 0 if it does not say."""
    try:
        counters = Path("/proc/vmstat").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in counters.splitlines() if line.startswith("oom_kill ")), 0)
