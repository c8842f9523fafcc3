"""Is that process still the one it was? A pid alone does not say so: pids are used again. Its start time does."""

from __future__ import annotations

import os
from pathlib import Path


def start_time(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None when it has ended (a zombie has)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name, in parentheses, may hold anything; the state is the first field after it.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def open_pidfd(pid: int, started: int) -> int | None:
    """A descriptor that becomes readable when the process ends; None when it has ended (or is another by now)."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    # The order matters: what is true after the descriptor was opened is true of the process it stands for.
    if start_time(pid) != started:
        os.close(fd)
        return None
    return fd


def find_by_environment(name: str, value: str) -> list[tuple[int, dict[str, str]]]:
    """The living processes of this user that were started with this variable: pid and environment."""
    found = []
    wanted = f"{name}={value}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if wanted in variables and start_time(int(entry.name)) is not None:
            pairs = (variable.decode(errors="replace").partition("=") for variable in variables if variable)
            found.append((int(entry.name), {key: text for key, _, text in pairs}))
    return found
