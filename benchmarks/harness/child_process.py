"""Runs a load in a separate process, so that its CPU time is separate and the harness does not slow it down."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, ClassVar

ROOT = Path(__file__).resolve().parents[2]


class LoadFailed(Exception):
    """A load process ended with an error; the message ends with what it said."""


class LoadProcess:
    """One load process; it prints one JSON object as its last line."""

    _living: ClassVar[dict[int, LoadProcess]] = {}

    @classmethod
    def living(cls, word: str) -> dict[str, int]:
        """The pids of loads that run now and have ``word`` in their command line, by what they do."""
        return {f"load {pid}": pid for pid, child in list(cls._living.items()) if word in child._argv}

    @classmethod
    def kill_all(cls) -> None:
        """Ends every load that still runs: for when the measurement is broken off."""
        for child in list(cls._living.values()):
            child.kill()

    def __init__(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        self._argv = [str(word) for word in argv]
        self._out = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as this object
        self._err = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            self._argv, cwd=ROOT, stdout=self._out, stderr=self._err, env={**os.environ, **(env or {})}
        )
        self.pid = self._process.pid
        self.cpu = 0.0
        LoadProcess._living[self.pid] = self

    def text(self) -> str:
        """What it printed so far."""
        return _read(self._out)

    def running(self) -> bool:
        """False once it has ended; ``result`` still has to be called."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def started(self, seconds: float = 60.0) -> None:
        """Waits until it has printed ``started``, or ended: then ``result`` says why. Raises TimeoutError."""
        until = time.monotonic() + seconds
        while "started" not in self.text() and self.running():
            if time.monotonic() > until:
                raise TimeoutError(f"{' '.join(self._argv)[:300]} has not started within {seconds:.0f} s")
            time.sleep(0.05)

    def terminate(self) -> None:
        """SIGTERM; ``result`` still has to be called."""
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Ends it, whatever it does; nothing is asked of it any more."""
        if self._process.returncode is None:
            self._process.kill()
            self._process.wait()
            LoadProcess._living.pop(self.pid, None)

    def wait(self, seconds: float = 900.0) -> str:
        """Waits for its end and returns what it printed; ``cpu`` has its CPU seconds then. Raises LoadFailed.

        After ``seconds`` it is killed, which is a failure too.
        """
        watchdog = threading.Timer(seconds, self._process.kill)
        watchdog.daemon = True
        watchdog.start()
        try:
            _, status, usage = os.wait4(self.pid, 0)
        finally:
            watchdog.cancel()
        LoadProcess._living.pop(self.pid, None)  # kill_all ends a process that is no longer waited for
        self._process.returncode = os.waitstatus_to_exitcode(status)
        self.cpu = usage.ru_utime + usage.ru_stime
        text = self.text()
        if self._process.returncode:
            said = (_read(self._err) or text).strip().splitlines()
            command = " ".join(self._argv)[:300]
            last = "\n".join(said[-12:])
            raise LoadFailed(f"{command} ended with {self._process.returncode}:\n{last}")
        return text

    def result(self, seconds: float = 900.0) -> dict[str, Any]:
        """Waits for its end and returns the JSON object. Raises LoadFailed."""
        lines = self.wait(seconds).strip().splitlines()
        if not lines:
            raise LoadFailed(f"{' '.join(self._argv)[:300]} printed nothing")
        row: dict[str, Any] = json.loads(lines[-1])
        return row


def _read(file: IO[bytes]) -> str:
    # The file's position is shared with the process that writes, so it must not be moved.
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode(errors="replace")


def ours(*words: object) -> LoadProcess:
    """A load of ``benchmarks.loads.clients``."""
    return LoadProcess([sys.executable, "-m", "benchmarks.loads.clients", *map(str, words)])
