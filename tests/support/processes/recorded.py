"""Kills processes that a file names."""

from __future__ import annotations

import os
import signal

from smq_storage.process.pids import open_pidfd


def kill_recorded(pid: int | None, started: int | None) -> None:
    """kill -9, unless that process has ended. ``started`` is in clock ticks since boot, as brokers' records have it.

    The system soon uses a pid again, also for a thread of another process, and kill() ends that process then.
    """
    if pid is None or started is None:
        return
    fd = open_pidfd(pid, started)
    if fd is None:
        return
    try:
        signal.pidfd_send_signal(fd, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it ended just now
    finally:
        os.close(fd)
