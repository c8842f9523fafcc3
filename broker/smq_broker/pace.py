"""When a chunk that is full may wait: acks come first while cores are short and memory is not.

Encoding and sending a chunk costs more CPU than taking its messages in. A burst is taken in at full pace when its
chunks are written after it.
"""

from __future__ import annotations

from pathlib import Path

SHORT = 0.5
"""Cores are short when some thread waited for one during this share of the time."""

LOOKS = 10
"""How many looks at a segment are remembered: what comes in jerks within a second is a burst all the same."""

PRESSURES = (Path("/sys/fs/cgroup/cpu.pressure"), Path("/proc/pressure/cpu"))
"""Of this container, which knows of its limit too, or of the machine."""


class Cores:
    """Are the cores short? ``look`` is called again and again, with the time in seconds."""

    def __init__(self) -> None:
        self._file = next((path for path in PRESSURES if stalled(path) is not None), None)
        self._at = 0.0
        self._stalled = 0.0

    def look(self, now: float) -> bool:
        """Since the last look. False where the system does not tell."""
        total = stalled(self._file) if self._file is not None else None
        if total is None:
            return False
        waited, passed = total - self._stalled, now - self._at
        self._stalled, self._at = total, now
        return passed > 0 and waited > SHORT * passed


def stalled(file: Path) -> float | None:
    """Seconds in which some thread waited for a core, of pressure stall information; None when there is none."""
    try:
        some = file.read_text().split("\n", 1)[0]
        return int(some.rpartition("total=")[2]) / 1e6
    except (OSError, ValueError):
        return None


def is_burst(grown: int, seconds: float, chunk: int) -> bool:
    """So many bytes came in so many seconds: is that a chunk's bytes each second, or more?"""
    return grown >= chunk * seconds
