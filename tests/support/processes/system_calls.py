"""What a process asks of the kernel, recorded by strace (Debian: `strace`)."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from support.waiting import eventually

WRITES = ("write", "writev", "pwrite64", "pwritev")
SYNCS = ("fsync", "fdatasync")
_BEGINNING = re.compile(r"^(\d+) +(\w+)\(\d+<(.*?)>(?=, |\)| <unfinished)(.*)$")
_RESUMED = re.compile(r"^(\d+) +<\.\.\. (\w+) resumed>")


@dataclass(frozen=True)
class SystemCall:
    """``target`` is the path or the connection, ``text`` what strace prints after it.

    ``started`` and ``ended`` are places in the recording, which has one order for all threads.
    """

    name: str
    target: str
    text: str
    started: int
    ended: int

    @property
    def is_write(self) -> bool:
        return self.name in WRITES

    @property
    def is_sync(self) -> bool:
        return self.name in SYNCS


def unavailable_reason() -> str | None:
    """Why processes cannot be traced here, or None."""
    if shutil.which("strace") is None:
        return "system calls are traced by strace, which is not installed (Debian: strace; `make cluster-packages`)"
    done = subprocess.run(["strace", "-f", "true"], capture_output=True, text=True, timeout=60)
    return f"strace may not trace a process here: {done.stderr.strip()}" if done.returncode else None


def tracer(recording: Path) -> Sequence[str]:
    """The command that is put before another one, to record its writes and syncs.

    The process that is started is the other command; strace watches it from outside.
    """
    calls = ",".join((*WRITES, *SYNCS))
    return [
        "strace",
        "-D",
        "-f",
        "-yy",
        "-s",
        "4200",
        "-e",
        f"trace={calls}",
        "-e",
        "signal=kill",
        "-o",
        str(recording),
    ]


def read_recording(recording: Path, pid: int) -> list[SystemCall]:
    """All writes and syncs of the ended process ``pid``, in the order in which they began.

    A call that never ended is left out.
    """
    ended = re.compile(rf"^{pid} +\+\+\+ ", re.MULTILINE)
    eventually(lambda: ended.search(recording.read_text(errors="replace")), what=f"strace has seen the end of {pid}")
    found: list[SystemCall] = []
    unfinished: dict[str, tuple[str, str, str, int]] = {}
    with recording.open(errors="replace") as lines:
        for place, line in enumerate(lines):
            if (resumed := _RESUMED.match(line)) and resumed[1] in unfinished:
                name, target, text, started = unfinished.pop(resumed[1])
                found.append(SystemCall(name, target, text, started, place))
            elif beginning := _BEGINNING.match(line):
                thread, name, target, text = beginning.groups()
                if text.endswith("<unfinished ...>"):
                    unfinished[thread] = (name, target, text, place)
                else:
                    found.append(SystemCall(name, target, text, place, place))
    return sorted(found, key=lambda call: call.started)


def synced_files(calls: Sequence[SystemCall], folder: Path) -> set[Path]:
    """The files in ``folder`` whose every write was followed by a sync."""
    last_write: dict[str, int] = {}
    last_sync: dict[str, int] = {}
    for call in calls:
        if call.is_sync:
            last_sync[call.target] = max(last_sync.get(call.target, -1), call.started)
        else:
            last_write[call.target] = max(last_write.get(call.target, -1), call.ended)
    synced = {path for path, place in last_sync.items() if last_write.get(path, -1) < place}
    return {Path(path) for path in synced if Path(path).is_relative_to(folder) and Path(path).is_file()}
