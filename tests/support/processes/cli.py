"""The `smq` command as a real process, with its output and exit code."""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import subprocess
import sys
import termios
import threading
from dataclasses import dataclass
from pathlib import Path

from support.waiting import HANG_GUARD, eventually

SMQ = [sys.executable, "-m", "smq.cli"]


@dataclass(frozen=True)
class CommandResult:
    """The output and the exit code of a command."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    def column(self, heading: str) -> list[str]:
        """The cells below a heading of a table. Columns are at least three spaces apart."""
        at = re.split(r"\s{2,}", self.lines[0].strip()).index(heading)
        return [re.split(r"\s{2,}", line.strip())[at] for line in self.lines[1:]]


def environment(leader: str | None = None) -> dict[str, str]:
    """This process's environment without variables that point `smq` to a developer's cluster.

    A busy machine takes longer to answer than a user wants to wait.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SMQ_", "AWS_"))}
    return (
        kept
        | {"PYTHONUNBUFFERED": "1", "TERM": "dumb", "COLUMNS": "200", "SMQ_TIMEOUT": str(HANG_GUARD)}
        | ({"SMQ_LEADER": leader} if leader else {})
    )


def smq(*arguments: str, leader: str | None = None, stdin: str | bytes = "") -> CommandResult:
    """Runs `smq` until it ends. Raises subprocess.TimeoutExpired."""
    data = stdin.encode() if isinstance(stdin, str) else stdin
    done = subprocess.run(
        [*SMQ, *arguments], input=data, capture_output=True, timeout=HANG_GUARD, env=environment(leader), check=False
    )
    return CommandResult(done.returncode, done.stdout.decode(), done.stderr.decode())


class DevProcess:
    """A running `smq dev`. A thread reads its output."""

    def __init__(self, folder: Path, *arguments: str, listen: str = "127.0.0.1:0") -> None:
        self.folder = folder
        self._lines: list[str] = []
        self.process = subprocess.Popen(
            [*SMQ, "dev", "--dir", str(folder), "--listen", listen, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment(),
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def output(self) -> str:
        return "".join(self._lines)

    @property
    def leader(self) -> str:
        """The address that it printed."""
        found = re.search(r"^ +leader +(\S+)$", self.output, re.MULTILINE)
        assert found, self.output
        return found[1]

    def wait_ready(self) -> DevProcess:
        def ready() -> bool:
            if self.process.poll() is not None:
                raise AssertionError(f"smq dev ended ({self.process.returncode}):\n{self.output}")
            return "Ctrl-C stops everything" in self.output

        eventually(ready, what="smq dev is ready")
        return self

    def end(self, how: signal.Signals = signal.SIGINT) -> int:
        """Its exit code. Repeatable."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            code = self.process.wait(HANG_GUARD)
        finally:
            if self.process.poll() is None:
                self.process.kill()
        self._reader.join(HANG_GUARD)
        return code

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.append(line)


class TerminalDev(DevProcess):
    """A `smq dev` whose output is a terminal, which ``hang_up`` takes away.

    With ``controlling`` the system sends SIGHUP then, as to a program in the foreground. Without it nothing tells the
    program, as one that was started with `&` in a shell that was killed; only its prints fail.
    """

    def __init__(self, folder: Path, *arguments: str, controlling: bool) -> None:
        self.folder = folder
        self._lines = []
        self._master, slave = os.openpty()
        self._hung_up = threading.Event()

        def take_terminal() -> None:
            signal.signal(signal.SIGHUP, signal.SIG_DFL)  # tests that run under nohup pass on that it is ignored
            if controlling:
                fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            [*SMQ, "dev", "--dir", str(folder), "--listen", "127.0.0.1:0", *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment(),
            start_new_session=True,
            preexec_fn=take_terminal,
        )
        os.close(slave)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def hang_up(self) -> None:
        """Closes the terminal."""
        self._hung_up.set()
        self._reader.join(HANG_GUARD)
        assert not self._reader.is_alive()

    def _read(self) -> None:
        # The terminal is closed by the thread that reads it, because a read under way would keep it open.
        while not self._hung_up.is_set():
            if select.select([self._master], [], [], 0.05)[0]:
                try:
                    self._lines.append(os.read(self._master, 65536).decode(errors="replace").replace("\r\n", "\n"))
                except OSError:  # the program has ended
                    break
        os.close(self._master)
