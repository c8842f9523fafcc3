"""DIR/brokers/<name>.json: which process runs as that broker, and which incarnations of it are proved dead.

Written before a process is started (with the incarnation it will have) and again when its pid is known, so that a
leader that follows one killed at any moment finds the process, or knows that it is dead.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

KEPT_DEAD = 1000


@dataclass(slots=True)
class Record:
    """``pid`` and ``started`` (clock ticks since boot) are None before the process was started."""

    name: str
    incarnation: str
    pid: int | None = None
    started: int | None = None
    boot: str = ""
    leader: str = ""
    """The address that the process was told."""
    dead: list[str] = field(default_factory=list)

    def write(self, folder: Path) -> None:
        """Atomically, and to the disk."""
        del self.dead[:-KEPT_DEAD]
        path = folder / f"{self.name}.json"
        temporary = folder / f".{self.name}.{os.getpid()}.tmp"
        with temporary.open("w") as file:
            json.dump(asdict(self), file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)


_FIELDS = {field.name for field in fields(Record)}


def read_all(folder: Path) -> tuple[list[Record], list[str]]:
    """The records that can be understood, and the names of files that cannot."""
    records, damaged = [], []
    for path in sorted(folder.glob("*.json")):
        try:
            found = json.loads(path.read_text())
            records.append(Record(**{key: value for key, value in found.items() if key in _FIELDS}))
        except (ValueError, TypeError, AttributeError, OSError):
            damaged.append(path.name)
    return records, damaged


def boot_id() -> str:
    """Pids and start times of another boot mean nothing: every process of then is dead."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
