"""What `smq dev` records about itself in its folder, for `smq dev status` and `smq dev stop`."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

PROCESS_FILE = "dev.json"
RECORD = "dev"


@dataclass(frozen=True, slots=True)
class DevRecord:
    """One running `smq dev`. ``created`` is the start of its process in seconds since 1970; pids are used again.

    ``ready``: all brokers have reported to the leader.
    """

    pid: int
    created: float
    leader: str
    brokers: int
    max_brokers: int | None
    filer_url: str
    filer_endpoint: str
    page: str
    ready: bool

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def read_record(folder: Path) -> DevRecord | None:
    """What was recorded last, whether or not that process still runs; None if there is nothing, or it is damaged."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        return DevRecord(**json.loads((folder / PROCESS_FILE).read_text())[RECORD])
    return None
