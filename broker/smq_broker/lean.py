"""Keeps out of a broker's memory and time what it has no use for: pandas, and long garbage collections."""

from __future__ import annotations

import gc
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType

import pyarrow as pa

from smq_storage.schemas import TIMESTAMP


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


def rest_collector() -> None:
    """Makes the cyclic collector pass over what lives long. To be called when everything is imported and wired.

    It would visit every object of the process, and every entry of every tail, again and again: 30 to 60 ms each time
    with 10000 entries, in which nothing is acked. Entries are in no cycles.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
