"""A disk that stops answering: a file system in a file, which the kernel freezes. Writes to it wait until it is thawed.

Needs root and loop devices, ``mkfs.ext4`` (e2fsprogs), ``mount`` and ``fsfreeze`` (util-linux).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SIZE_BYTES = 256 << 20


def unavailable_reason() -> str | None:
    """Why there cannot be such a disk here; None if there can."""
    if os.geteuid() != 0:
        return "mounting needs root"
    missing = [tool for tool in ("mkfs.ext4", "mount", "fsfreeze") if shutil.which(tool) is None]
    if missing:
        return f"{', '.join(missing)} missing: apt-get install e2fsprogs util-linux"
    return None if Path("/dev/loop-control").exists() else "no loop devices"


class FreezingDisk:
    """Mounted at ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._is_frozen = False

    def freeze(self) -> None:
        _run("fsfreeze", "--freeze", self._folder)
        self._is_frozen = True

    def thaw(self) -> None:
        if self._is_frozen:
            _run("fsfreeze", "--unfreeze", self._folder)
            self._is_frozen = False


@contextmanager
def freezing_disk(image: Path, folder: Path) -> Iterator[FreezingDisk]:
    """A disk in the file ``image``, mounted at ``folder`` until the block ends; it is thawed then."""
    with image.open("wb") as file:
        file.truncate(SIZE_BYTES)
    _run("mkfs.ext4", "-q", image)
    folder.mkdir(parents=True)
    _run("mount", "-o", "loop", image, folder)
    disk = FreezingDisk(folder)
    try:
        yield disk
    finally:
        disk.thaw()
        _run("umount", "--lazy", folder)  # a process may still have files open there


def _run(*command: str | Path) -> None:
    subprocess.run(command, check=True)
