"""Keeps out of a broker's memory and time what it has no use for: pandas, page faults, long garbage collections."""

from __future__ import annotations

import ctypes
import gc
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType

import pyarrow as pa

from smq_storage.schemas import TIMESTAMP

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -2, -3, -8
"""The numbers of glibc's ``mallopt``."""
MIB = 1024 * 1024


class _Refuse(importlib.abc.MetaPathFinder):
    """Says that pandas is not there."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname == "pandas":
            raise ModuleNotFoundError("a broker does without pandas", name=fullname)
        return None


def warm_up() -> None:
    """Does Arrow's lazy imports now, without pandas.

    Arrow looks for pandas, when it is installed, at its first conversion of a time: half a second, that no seal may
    wait, and 35 MB.
    """
    sys.meta_path.insert(0, _Refuse())
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
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
