"""Measures CPU seconds, memory and load of chosen processes from /proc."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType

_TICKS = os.sysconf("SC_CLK_TCK")
# Cores that processes outside the measurement may take before a run is called noisy.
NOISY = 0.2

Groups = Mapping[str, Iterable[int]]


def cpu_seconds(pids: Iterable[int]) -> float:
    """User and system time of living processes; one that is gone counts as nothing."""
    ticks = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICKS


class PeakMemory:
    """A context manager that samples the memory of processes, without the files that they map.

    The kernel takes the pages of files back when memory is short, so that the limit of a container is for the rest.
    """

    def __init__(self, pids: Iterable[int]) -> None:
        self.highest_mb = 0.0
        self._pids = list(pids)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._ended.wait(0.1):
            self.highest_mb = max([self.highest_mb, *(memory_mb(pid, "RssAnon") for pid in self._pids)])


def memory_mb(pid: int, what: str = "VmRSS") -> float:
    """One line of /proc/<pid>/status in MB of 10^6 bytes: VmRSS, VmHWM (the highest RSS so far), RssAnon."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(what + ":"):
                return int(line.split()[1]) * 1024 / 1e6
    except OSError:
        pass
    return 0.0


def busy_seconds() -> float:
    """CPU seconds of the whole machine since its start, without idling and waiting for disks."""
    fields = [int(x) for x in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / _TICKS


def wait_until_quiet(seconds: float, quiet: int = 3) -> bool:
    """Waits until the machine was quiet for ``quiet`` seconds, at most ``seconds``. False: it never was."""
    until = time.monotonic() + seconds
    passed = 0
    while passed < quiet:
        if time.monotonic() > until:
            return False
        before = busy_seconds()
        time.sleep(1.0)
        passed = passed + 1 if busy_seconds() - before < NOISY else 0
    return True


class Meter:
    """``with Meter(groups) as meter: …; meter.row(child_cpu)``.

    ``groups`` maps a name, such as ``broker``, to pids, or is a function that says so: processes may come and go.
    What is neither in a group nor a client nor this process is ``other_cores``: the noise.
    """

    def __init__(self, groups: Callable[[], Groups]) -> None:
        self._groups = groups
        self._spent: dict[str, float] = {}
        self.wall = 0.0

    def __enter__(self) -> Meter:
        self._start = {pid: cpu_seconds([pid]) for pids in self._groups().values() for pid in pids}
        self._busy, self._own, self._t0 = busy_seconds(), time.process_time(), time.monotonic()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.wall = time.monotonic() - self._t0
        self._own = time.process_time() - self._own
        self._busy = busy_seconds() - self._busy
        for name, pids in self._groups().items():
            self._spent[name] = sum(cpu_seconds([pid]) - self._start.get(pid, 0.0) for pid in pids)

    def spent(self, group: str) -> float:
        """CPU seconds of that group inside the block."""
        return self._spent.get(group, 0.0)

    def row(self, client_cpu: float) -> dict[str, float]:
        """Seconds and cores; ``client_cpu`` is what the clients' own processes took, started and ended inside."""
        other = max(0.0, self._busy - sum(self._spent.values()) - client_cpu - self._own)
        row = {f"{name}_cpu_s": round(seconds, 2) for name, seconds in self._spent.items()}
        return row | {
            "client_cpu_s": round(client_cpu, 2),
            "wall_s": round(self.wall, 2),
            "other_cores": round(other / self.wall, 2) if self.wall else 0.0,
        }
