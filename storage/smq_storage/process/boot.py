"""Which boot of the machine this is."""

from __future__ import annotations

from pathlib import Path


def boot_id() -> str:
    """The id of this boot; empty if the system has none. Processes of another boot have terminated."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
