"""What `smq dev` records about itself in its folder, for `smq dev status` and `smq dev stop`."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from smq.transport.security.security_files import SecurityOptions
from smq_storage.process.pids import ProcessId

PROCESS_FILE = "dev.json"
# Why the last `smq dev` ended, if nobody ended it.
FAILURE_FILE = "dev.failure"
PORTS_FILE = "ports.json"
RECORD = "dev"


@dataclass(frozen=True, slots=True, kw_only=True)
class DevRecord:
    """One running `smq dev`. ``ready``: all brokers have reported to the leader."""

    process: ProcessId
    leader: str
    brokers: int
    max_brokers: int | None
    filer_url: str
    filer_endpoint: str
    page: str
    ready: bool
    secure: bool = False
    kafka: str = ""
    """Where the first broker serves Kafka clients, if it does."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class DevSecurity:
    """What a client needs of a `smq dev --secure`, in its folder."""

    folder: Path

    @property
    def ca_file(self) -> Path:
        return self.folder / "security" / "ca.crt"

    @property
    def token_file(self) -> Path:
        """The administrator's."""
        return self.folder / "security" / "admin.token"


def options_of(security: DevSecurity | None) -> SecurityOptions:
    """As ``smq.connect`` takes them; none for an open cluster."""
    if security is None:
        return {}
    return {"ca_file": str(security.ca_file), "token_file": str(security.token_file)}


@dataclass(frozen=True, slots=True)
class DevPorts:
    """The ports of the last `smq dev` of a folder, which the next one takes again. Empty if they are not known."""

    leader: str = ""
    page: str = ""
    seaweedfs: list[int] = field(default_factory=list)

    @classmethod
    def read(cls, folder: Path) -> DevPorts:
        with suppress(OSError, ValueError, TypeError, KeyError):
            found = json.loads((folder / PORTS_FILE).read_text())
            return cls(str(found["leader"]), str(found["page"]), [int(port) for port in found["seaweedfs"]])
        return cls()

    def write(self, folder: Path) -> None:
        with suppress(OSError):
            (folder / PORTS_FILE).write_text(json.dumps(asdict(self)))


def write_failure(folder: Path, message: str) -> None:
    """Keeps for `smq dev status` why it ended."""
    with suppress(OSError):
        (folder / FAILURE_FILE).write_text(message)


def read_failure(folder: Path) -> str:
    """Why the last one ended; empty if somebody ended it, or if it was killed."""
    with suppress(OSError, ValueError):
        return (folder / FAILURE_FILE).read_text()
    return ""


def forget_failure(folder: Path) -> None:
    (folder / FAILURE_FILE).unlink(missing_ok=True)


def security_of(record: DevRecord, folder: Path) -> DevSecurity | None:
    """How to enter what was recorded in this folder; None if it is open."""
    return DevSecurity(folder.resolve()) if record.secure else None


def security_of_leader(folder: Path, address: str) -> DevSecurity | None:
    """How to enter the release of this folder, if its leader has that address, and it is secure."""
    record = read_record(folder)
    return security_of(record, folder) if record is not None and record.leader == address else None


def read_record(folder: Path) -> DevRecord | None:
    """What was recorded last, whether or not that process still runs; None if there is nothing, or it is damaged."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        fields = json.loads((folder / PROCESS_FILE).read_text())[RECORD]
        return DevRecord(**{**fields, "process": ProcessId(*fields["process"])})
    return None
