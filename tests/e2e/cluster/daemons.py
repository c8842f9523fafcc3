"""Programs that run in the background, known by pid and time of birth, so that nothing else is ever stopped."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path


class NotReady(Exception):
    """Something did not come up in time; the message has the end of its log."""


class Daemons:
    """The background programs of one cluster. With ``attached`` they die with the thread that started them."""

    def __init__(self, folder: Path, *, attached: bool) -> None:
        self._pids = folder / "pid"
        self._logs = folder / "log"
        self._attached = attached
        for made in (self._pids, self._logs):
            made.mkdir(parents=True, exist_ok=True)

    def start(self, name: str, command: Sequence[str | Path]) -> None:
        """Does nothing while the one of that name is alive."""
        if self.alive(name):
            return
        guard = dying_with(os.getpid()) if self._attached else []
        with self.log(name).open("ab") as log:
            process = subprocess.Popen(
                [*guard, *map(str, command)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        (self._pids / name).write_text(f"{process.pid} {birth(process.pid)}")

    def alive(self, name: str) -> bool:
        return self.pid(name) is not None

    def pid(self, name: str) -> int | None:
        """The process id while it runs."""
        with contextlib.suppress(OSError, ValueError):
            pid, born = (self._pids / name).read_text().split()
            now = birth(int(pid))
            if now == born or (not now and _is_zombie(int(pid))):
                return int(pid)
        return None

    def stop(self, name: str, how: signal.Signals = signal.SIGTERM, deadline: float = 10.0) -> None:
        """Signals it and waits; kills it after ``deadline`` seconds."""
        for sent, grace in ((how, deadline), (signal.SIGKILL, 10.0)):
            pid = self.pid(name)
            if pid is None:
                break
            os.kill(pid, sent)
            with contextlib.suppress(NotReady):
                wait_until(lambda: not self.alive(name), grace, f"{name} ends")
        (self._pids / name).unlink(missing_ok=True)

    def names(self) -> list[str]:
        """Those started and not stopped, in the order of their start."""
        return [p.name for p in sorted(self._pids.iterdir(), key=lambda p: p.stat().st_mtime_ns)]

    def log(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def log_tails(self, *names: str) -> str:
        """The end of their logs, to be shown when something failed."""
        parts = []
        for name in names:
            with contextlib.suppress(OSError):
                lines = self.log(name).read_text(errors="replace").splitlines()[-5:]
                parts.append("\n".join([f"--- {name}.log", *lines]))
        return "\n".join(parts)


def dying_with(parent: int) -> list[str]:
    """What to put before a command that is to die with this process, its parent.

    util-linux' setpriv does it without a hook in a threaded fork; the shell notices a parent that died before that.
    """
    return ["setpriv", "--pdeathsig", "KILL", "--", "sh", "-c", '[ "$PPID" = "$0" ] && exec "$@"', str(parent)]


def birth(pid: int) -> str:
    """Its start in ticks since boot, which distinguishes it from a later process of its id; '' for a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]


def wait_until(condition: Callable[[], object], deadline: float, what: str) -> None:
    """Raises NotReady after ``deadline`` seconds."""
    end = time.monotonic() + deadline
    while not condition():
        if time.monotonic() > end:
            raise NotReady(f"not within {deadline:.0f} s: {what}")
        time.sleep(0.05)


def _is_zombie(pid: int) -> bool:
    """Reaps an ended child, which would stay a zombie; True while some of its threads have not ended yet."""
    try:
        return os.waitpid(pid, os.WNOHANG) == (0, 0)
    except ChildProcessError:
        return False
