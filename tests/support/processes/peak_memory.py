"""The peak of a process's memory."""

from __future__ import annotations

from pathlib import Path


class PeakMemory:
    """The most that a process has had from now on, beyond what it has now."""

    def __init__(self, pid: int) -> None:
        self._status = Path(f"/proc/{pid}/status")
        Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak is what it has now
        self._before = self._read("VmRSS")

    def growth(self) -> int:
        return self._read("VmHWM") - self._before

    def _read(self, what: str) -> int:
        lines = dict(line.split(":", 1) for line in self._status.read_text().splitlines())
        return int(lines[what].split()[0]) * 1024
