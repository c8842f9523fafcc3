"""Files that only this user can read, and that are whole after a crash."""

from __future__ import annotations

import os
from pathlib import Path


def write_private(path: Path, content: bytes) -> None:
    """Creates or replaces a file, as one step. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def sync_folder(folder: Path) -> None:
    """What was created or renamed in the folder outlives a power failure. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
