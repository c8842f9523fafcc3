"""Tunes glibc's allocator and returns memory to the kernel. Does nothing on other systems."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD, ARENA_MAX = -1, -2, -3, -8
"""The numbers of glibc's ``mallopt``."""
# As a threshold, the largest value.
NEVER = -1
# Of ``madvise``.
_DONTNEED = 4


def set_malloc(options: Mapping[int, int]) -> bool:
    """Calls ``mallopt`` for each option. Call it before threads start. Returns False if glibc rejected one of them."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    # A rejected option must not keep the others from being set.
    taken = [mallopt(which, value) == 1 for which, value in options.items()]
    return all(taken)


def release_memory() -> None:
    """Returns unused memory to the kernel: freed heap, and pages of library code that ran once.

    The kernel maps unmodified code again, from the same file, when it runs again.
    """
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.malloc_trim(0)
        for start, end in code_areas(Path("/proc/self/smaps").read_text()):
            libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _DONTNEED)


def code_areas(smaps: str) -> list[tuple[int, int]]:
    """Start and end of the areas of a process that are code from files without modified pages."""
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
