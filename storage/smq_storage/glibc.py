"""What glibc and the kernel can be told about the memory of this process. Nothing happens where they are others."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD, ARENA_MAX = -1, -2, -3, -8
"""The numbers of glibc's ``mallopt``."""
NEVER = -1
"""As a threshold: the largest there is."""
_DONTNEED = 4
"""Of ``madvise``."""


def set_malloc(wishes: Mapping[int, int]) -> bool:
    """``mallopt`` for each of them; to be called before threads are started. False: not all were taken."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    # Each is to be told, whatever became of the one before.
    taken = [mallopt(which, value) == 1 for which, value in wishes.items()]
    return all(taken)


def give_back() -> None:
    """Gives back what is needed no more: freed memory, and the code of libraries that is run once.

    Code that nobody wrote to is mapped anew, from the same file, when it is run again.
    """
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.malloc_trim(0)
        for start, end in code_areas(Path("/proc/self/smaps").read_text()):
            libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _DONTNEED)


def code_areas(smaps: str) -> list[tuple[int, int]]:
    """Start and end of the areas of a process that are code of files, without a page of their own."""
    found = []
    area: tuple[int, int] | None = None
    for line in smaps.splitlines():
        words = line.split(None, 5)
        if not words[0].endswith(":"):
            start, end = (int(address, 16) for address in words[0].split("-"))
            area = (start, end) if words[1] == "r-xp" and words[-1].startswith("/") else None
        elif area and words[0] == "Anonymous:" and words[1] == "0":
            found.append(area)
    return found
