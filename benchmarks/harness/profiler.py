"""Profiles a run: CPU time by thread name from /proc, and Python functions with py-spy if it is available."""

from __future__ import annotations

import collections
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

from benchmarks.harness import tools
from benchmarks.harness.meter import cpu_seconds
from benchmarks.harness.tools import ToolMissing

_TICKS = os.sysconf("SC_CLK_TCK")


def thread_cpu(pid: int) -> dict[str, float]:
    """CPU seconds of the living threads of a process, added up by name."""
    spent: dict[str, float] = collections.defaultdict(float)
    for task in Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            text = task.read_text()
        except OSError:
            continue
        name, rest = text[text.index("(") + 1 : text.rindex(")")], text.rsplit(")", 1)[1].split()
        spent[name.rstrip("0123456789-_ ")] += (int(rest[11]) + int(rest[12])) / _TICKS
    return dict(spent)


class Profiler:
    """``with Profiler(pids, folder) as p: run the load; print(p.report)``.

    ``pids`` says which processes to look at, by name, once the load has been running for ``after`` seconds.
    """

    def __init__(self, pids: Callable[[], Mapping[str, int]], *, after: float = 3.0, seconds: int = 5) -> None:
        self._pids = pids
        self._after, self._seconds = after, seconds
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._ended = threading.Event()
        self.report = "the load ended before it could be looked at"

    def __enter__(self) -> Profiler:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()

    def _poll(self) -> None:
        if self._ended.wait(self._after):
            return
        pids = dict(self._pids())
        before = {name: thread_cpu(pid) for name, pid in pids.items()}
        began = {name: cpu_seconds([pid]) for name, pid in pids.items()}
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            spies = self._spy(pids, Path(folder))
            self._ended.wait(self._seconds)
            wall = time.monotonic() - start
            after = {name: thread_cpu(pid) for name, pid in pids.items()}
            whole = {name: cpu_seconds([pid]) - began[name] for name, pid in pids.items()}
            for spy in spies.values():
                _end(spy)
            lines = []
            for name in pids:
                spent = {t: s - before[name].get(t, 0.0) for t, s in after[name].items()}
                lines.append(f"{name}: {whole[name] / wall:.2f} cores")
                busiest = sorted(spent.items(), key=lambda item: -item[1])[:6]
                lines += [f"    {s / wall:5.2f} cores  threads {t}" for t, s in busiest if s > 0.02 * wall]
                lines += _functions(Path(folder) / name)
        self.report = "\n".join(lines)

    def _spy(self, pids: Mapping[str, int], folder: Path) -> dict[str, subprocess.Popen[bytes]]:
        try:
            spy = str(tools.venv() / "py-spy")
        except ToolMissing:
            return {}
        words = [spy, "record", "--format", "raw", "--rate", "150", "--nonblocking", "--duration", str(self._seconds)]
        return {
            name: subprocess.Popen(
                [*words, "--output", str(folder / name), "--pid", str(pid)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for name, pid in pids.items()
        }


def _end(spy: subprocess.Popen[bytes]) -> None:
    """It ends by itself, unless the process has too many threads for its pace."""
    try:
        spy.wait(10)
    except subprocess.TimeoutExpired:
        spy.kill()
        spy.wait()


def _functions(path: Path) -> list[str]:
    """The busiest innermost Python functions of py-spy's raw output: ``frame;frame;frame count`` a line."""
    if not path.exists():
        return []
    counts: collections.Counter[str] = collections.Counter()
    for line in path.read_text(errors="replace").splitlines():
        stack, _, count = line.rpartition(" ")
        frames = stack.split(";")
        counts[" < ".join(reversed(frames[-2:]))] += int(count)
    total = sum(counts.values()) or 1
    return [f"    {count / total:5.0%}  {place}" for place, count in counts.most_common(10)]
