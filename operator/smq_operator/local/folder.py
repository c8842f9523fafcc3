"""Allows one leader per folder, by an advisory lock that ends with the process."""

from __future__ import annotations

import fcntl
import os
import uuid
from pathlib import Path

from smq_core.errors import InvalidRequest, SmqError


class FolderInUse(SmqError):
    """Another leader runs on this folder."""


class FolderLock:
    """Held from ``acquire`` until the process ends or ``release``."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "leader.lock"
        self._fd: int | None = None

    def acquire(self) -> None:
        """Raises FolderInUse at once if another process holds it."""
        # Not inheritable, by default, because a broker that outlives this leader must not hold the lock.
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


def folder_id(folder: Path) -> str:
    """The folder's id, created if there is none. Call it while the folder's lock is held. Raises InvalidRequest."""
    path = folder / "id"
    try:
        known = path.read_text().strip() if path.exists() else ""
        if known:
            return known
        made = uuid.uuid4().hex
        temporary = path.with_name(".id.tmp")
        temporary.write_text(f"{made}\n")
        temporary.replace(path)
    except OSError as error:
        raise InvalidRequest(f"cannot keep an id in {folder} ({error.strerror}): choose another --dir") from None
    return made
