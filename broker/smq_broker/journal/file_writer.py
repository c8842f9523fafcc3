"""Writes at an offset of a file. A small write keeps the interpreter's lock.

``os.pwritev`` releases the lock during the write. That is some microseconds, because the bytes only go to the page
cache. But meanwhile another thread takes the lock, and this one waits for it, up to 5 ms. A disk that cannot keep up
would hold up all threads of the process, so for a while after a slow write all writes release the lock.
"""

from __future__ import annotations

import ctypes
import errno
import os
import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

SMALL_BYTES = 16 * 1024
# Longer than a thread waits for a busy core, mostly.
SLOW_SECONDS = 0.02
# For how long after a slow write all writes release the lock.
RELEASE_FOR_SECONDS = 10.0

_MAX_BUFFERS = os.sysconf("SC_IOV_MAX")

# Writes these buffers, of 1 byte items, to a descriptor at an offset. Returns how many bytes it wrote.
#
# May raise OSError.
WriteCall: TypeAlias = Callable[[int, Sequence[memoryview], int], int]

_pwrite = ctypes.PyDLL(None, use_errno=True).pwrite  # functions of a PyDLL are called with the lock
_pwrite.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_long)
_pwrite.restype = ctypes.c_ssize_t


def write_with_lock(fd: int, buffers: Sequence[memoryview], at: int) -> int:
    """As ``os.pwritev``, but keeps the interpreter's lock."""
    data = b"".join(buffers)
    while (written := _pwrite(fd, data, len(data), at)) < 0:
        error = ctypes.get_errno()
        if error != errno.EINTR:
            raise OSError(error, os.strerror(error))
    return int(written)


def write_without_lock(fd: int, buffers: Sequence[memoryview], at: int) -> int:
    return os.pwritev(fd, buffers[:_MAX_BUFFERS], at)


class FileWriter:
    """For all files of one disk. Safe from many threads. ``clock`` returns seconds."""

    def __init__(
        self,
        with_lock: WriteCall = write_with_lock,
        without_lock: WriteCall = write_without_lock,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._with_lock = with_lock
        self._without_lock = without_lock
        self._clock = clock
        self._keeps_lock_from = float("-inf")

    def write(self, fd: int, buffers: Sequence[memoryview], at: int) -> int:
        """A ``WriteCall``: may write less than all, as when the disk becomes full."""
        began = self._clock()
        if began < self._keeps_lock_from or sum(map(len, buffers)) > SMALL_BYTES:
            return self._without_lock(fd, buffers, at)
        try:
            return self._with_lock(fd, buffers, at)
        finally:  # also after an error, which may come late
            ended = self._clock()
            if ended - began > SLOW_SECONDS:
                self._keeps_lock_from = ended + RELEASE_FOR_SECONDS
