"""Clocks that differ between processes and are stepped while these run.

The monotonic clock of each process begins anywhere (a time namespace; needs root). The wall clock of the leader and of
each broker is stepped by a module that Python imports before the program. It adds an offset, which it reads from a
file, to ``time.time_ns``, by which the product's code reads the wall clock. It leaves ``time.time`` alone, because
gRPC's Python part computes deadlines with it for a C library that has the machine's clock. Debian's libfaketime is of
no use here: without its fake of the monotonic clock, ``time.sleep`` fails. Only these processes have such clocks;
SeaweedFS and the clients have the machine's.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Sequence
from pathlib import Path

# Seconds, less than the days after which a segment forgets a producer.
OFFSETS = (0, 5, -5, 3600, -3600, 86400, -86400)

SITE = """
import os, time
_time, _path, _known = time.time_ns, os.environ["SMQ_CHAOS_CLOCK"], [0, 0]
def time_ns():
    now = _time()
    if now >= _known[0]:
        with open(_path) as file:
            _known[:] = now + 200_000_000, int(file.read()) * 1_000_000_000
    return now + _known[1]
time.time_ns = time_ns
"""

SCRIPT = """#!/bin/sh
# Runs a command with clocks of its own; the leader is the process without a broker's name.
export SMQ_CHAOS_CLOCK="{folder}/${{SMQ_NAME:-leader}}" PYTHONPATH="{folder}/site:$PYTHONPATH"
exec unshare --time --monotonic "$(od -An -N3 -tu4 /dev/urandom | tr -d ' ')" "$@"
"""


def unavailable_reason() -> str | None:
    """Why clocks cannot be stepped here; None if they can."""
    if os.geteuid() != 0:
        return "time namespaces need root"
    return "unshare is missing: make chaos-packages" if shutil.which("unshare") is None else None


class SteppedClocks:
    """``script`` is a command that runs another one. ``names`` are those of the processes."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self._folder = folder
        self._names = list(names)
        (folder / "site").mkdir(parents=True)
        (folder / "site" / "sitecustomize.py").write_text(SITE)
        self.script = folder / "with-clocks"
        self.script.write_text(SCRIPT.format(folder=folder))
        self.script.chmod(0o755)
        for name in names:
            self.set(name, OFFSETS[0])

    def step(self, draw: random.Random) -> str:
        name, offset = draw.choice(self._names), draw.choice(OFFSETS)
        self.set(name, offset)
        return f"the wall clock of {name} is {offset:+} s off"

    def set(self, name: str, offset: int) -> None:
        new = self._folder / f"{name}.new"
        new.write_text(f"{offset}\n")
        new.replace(self._folder / name)
