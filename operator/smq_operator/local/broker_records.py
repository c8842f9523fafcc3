"""DIR/brokers/<name>.json: which process runs as that broker, and which of its incarnations have terminated.

A record is written before a process is started (with its incarnation) and again when its pid is known. If the leader is
killed at any moment, the next one finds the process, or has proof that it has terminated.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

from smq_core.access.modes import SecurityMode
from smq_storage.object_store.json_codec import from_json

MAX_KEPT_TERMINATED = 1000


@dataclass(slots=True, kw_only=True)
class BrokerRecord:
    """``pid`` and ``started`` (clock ticks since boot) are None before the process is started."""

    name: str
    incarnation: str
    pid: int | None = None
    started: int | None = None
    boot: str = ""
    leader: str = ""
    """The leader's address that was passed to the process."""
    security: SecurityMode = SecurityMode.DISABLED
    terminated: list[str] = field(default_factory=list)

    def write(self, folder: Path) -> None:
        """Writes the record atomically, and to the disk."""
        del self.terminated[:-MAX_KEPT_TERMINATED]
        path = folder / f"{self.name}.json"
        temporary = folder / f".{self.name}.{os.getpid()}.tmp"
        with temporary.open("w") as file:
            json.dump(asdict(self), file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)


def read_records(folder: Path) -> tuple[list[BrokerRecord], list[str]]:
    """The valid records, and the names of damaged files."""
    records, damaged = [], []
    for path in sorted(folder.glob("*.json")):
        try:
            records.append(from_json(BrokerRecord, path.read_bytes()))
        except (ValueError, OSError):
            damaged.append(path.name)
    return records, damaged
