"""One leader per folder: an advisory lock that ends with the process, however it ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from smq_core.errors import SmqError


class FolderInUse(SmqError):
    """Another leader runs on this folder."""


class FolderLock:
    """Held from ``acquire`` until the process ends or ``release``."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "leader.lock"
        self._fd: int | None = None

    def acquire(self) -> None:
        """Raises FolderInUse at once when another process holds it."""
        # Not inheritable (the default): a broker that outlives this leader must not keep the lock.
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(fd, 100).decode(errors="replace").strip() or "unknown"
            os.close(fd)
            raise FolderInUse(
                f"another leader (pid {holder}) runs on {self.path.parent}: stop it first, or give this one "
                "another folder with --dir"
            ) from None
        os.ftruncate(fd, 0)
        os.write(fd, f"{os.getpid()}\n".encode())
        self._fd = fd

    def release(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
