"""Files that had records and get others: to write over their page cache costs less than half of new files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from smq_broker.journal.mapped_file import MappedFile
from smq_broker.runtime.lock_order import BrokerLock
from smq_storage.process.locks import make_lock

LIMIT_BYTES = 256 * 1024 * 1024
# Smaller files are not worth their names.
MIN_FILE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class RecycledFile:
    """``fd`` is open for writes. ``size`` is in bytes."""

    path: Path
    fd: int
    size: int


class RecycledFiles:
    """Those of one process, safe from many threads. All methods raise OSError if the disk fails.

    ``on_resize`` is called with the bytes by which they grew.
    """

    def __init__(self, folder: Path, on_resize: Callable[[int], None], limit_bytes: int = LIMIT_BYTES) -> None:
        self._folder = folder
        self._on_resize = on_resize
        self._limit_bytes = limit_bytes
        self._lock = make_lock(BrokerLock.RECYCLED_FILES)
        self._files: list[tuple[Path, int, MappedFile]] = []
        self._bytes = 0
        self._added = 0

    def add(self, path: Path, mapped: MappedFile | None = None) -> None:
        """Takes a file from its folder, or deletes it if there are enough. It waits here until ``mapped`` is unused."""
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            return  # somebody deleted it
        with self._lock:
            if size >= MIN_FILE_BYTES and self._bytes + size <= self._limit_bytes:
                self._folder.mkdir(exist_ok=True)
                self._added += 1
                recycled = self._folder / str(self._added)
                path.rename(recycled)
                self._files.append((recycled, size, mapped or MappedFile()))
                self._resized(size)
                return
        path.unlink(missing_ok=True)

    def take(self) -> RecycledFile | None:
        """The one that was added last, whose pages are most likely in memory. It is the caller's from now on."""
        with self._lock:
            unused = (at for at in reversed(range(len(self._files))) if not self._files[at][2].in_use())
            at = next(unused, None)
            if at is None:
                return None
            path, size, _ = self._files.pop(at)
            self._resized(-size)
            try:
                return RecycledFile(path, os.open(path, os.O_RDWR | os.O_CLOEXEC), size)
            except FileNotFoundError:
                return None  # somebody deleted it

    def clear(self) -> bool:
        """Deletes all, to free their space. False if there were none."""
        with self._lock:
            found, self._files = self._files, []
            self._resized(-self._bytes)
            for path, _, _ in found:
                path.unlink(missing_ok=True)
        return bool(found)

    def remove_former(self) -> None:
        """Deletes what a former process left."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _resized(self, nbytes: int) -> None:
        self._bytes += nbytes
        self._on_resize(nbytes)
