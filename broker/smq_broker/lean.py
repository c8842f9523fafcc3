"""Keeps out of a broker's time what it has no use for: late imports, page faults, long garbage collections."""

from __future__ import annotations

import ctypes
import gc
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from smq_storage.schemas import TIMESTAMP

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -2, -3, -8
"""The numbers of glibc's ``mallopt``."""
_DONTNEED = 4
"""Of ``madvise``."""
MIB = 1024 * 1024


def warm_up() -> None:
    """Does Arrow's lazy imports now: its first conversion of a time looks for pandas (which ``spare`` refuses)."""
    pa.scalar(0, TIMESTAMP)


def keep_freed_memory(limit: int) -> bool:
    """Tells glibc to use memory again rather than give it back. ``limit`` is the memory of this process, in bytes.

    Batches come in buffers of about 1 MB. By default each of them is mapped, touched for the first time, and unmapped:
    that was 40 % of a broker's CPU time. Two arenas keep what is freed where it is looked for; what grows beyond a
    quarter of the limit is still given back. To be called before threads are started. False: not a glibc.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    wishes = {
        _MMAP_THRESHOLD: 32 * MIB,
        _TRIM_THRESHOLD: min(limit // 4, 2**31 - 1),
        _TOP_PAD: min(16 * MIB, limit // 32),
        _ARENA_MAX: 2,
    }
    # Each is to be told, whatever became of the one before.
    taken = [mallopt(which, value) == 1 for which, value in wishes.items()]
    return all(taken)


def rest_collector() -> None:
    """Makes the cyclic collector pass over what lives long. To be called when everything is imported and wired.

    It would visit every object of the process, and every entry of every tail, again and again: 30 to 60 ms each time
    with 10000 entries, in which nothing is acked. Entries are in no cycles.
    """
    gc.collect()
    _forget_the_start()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def _forget_the_start() -> None:
    """Gives back what only imports needed: freed memory, and the code of libraries that is run once.

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
