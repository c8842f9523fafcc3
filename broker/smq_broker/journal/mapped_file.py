"""A journal file as memory: the rows of a tail are read from its page cache, which is the only copy of them.

``mmap`` of the standard library keeps a descriptor for each mapping, and maps nothing beyond the end of a file, which
grows. So this module calls the C library.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref

import pyarrow as pa

# A part of a file is mapped at a time. Larger ones keep a file longer, smaller ones need more mappings, of which a
# process has at most 65,530.
WINDOW_BYTES = 4 * 1024 * 1024

_PAGE = mmap.ALLOCATIONGRANULARITY
_FAILED = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_mmap = _libc.mmap
_mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_mmap.restype = ctypes.c_void_p
_munmap = _libc.munmap
_munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


class _Window:
    """A mapped part of a file, at ``start``. It is unmapped when no buffer refers to it any more."""

    __slots__ = ("__weakref__", "address", "end", "start")

    def __init__(self, fd: int, start: int, length: int) -> None:
        address = _mmap(None, length, mmap.PROT_READ, mmap.MAP_SHARED, fd, start)
        if address == _FAILED:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))
        self.address: int = address
        self.start, self.end = start, start + length
        weakref.finalize(self, _munmap, address, length).atexit = False


class MappedFile:
    """The mappings of one file. Not safe from several threads; the buffers are.

    A buffer may be read as long as nobody writes to these bytes of the file or cuts them off. Until then the file must
    stay as it is, so ``in_use`` comes before it is used again.
    """

    def __init__(self) -> None:
        self._windows: list[weakref.ref[_Window]] = []
        self._last: _Window | None = None

    def read(self, fd: int, at: int, length: int) -> pa.Buffer:
        """Bytes that were written, at least one. Raises OSError if the process has too many mappings."""
        window = self._last
        if window is None or at + length > window.end:
            start = at - at % _PAGE
            window = self._last = _Window(fd, start, max(WINDOW_BYTES, at + length - start))
            self._windows.append(weakref.ref(window))
        return pa.foreign_buffer(window.address + at - window.start, length, window)

    def in_use(self) -> bool:
        """Whether somebody may still read a buffer. The last mapping goes with this call, if nobody does."""
        self._last = None
        self._windows = [it for it in self._windows if it() is not None]
        return bool(self._windows)
