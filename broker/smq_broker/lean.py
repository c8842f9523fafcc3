"""Keeps out of a broker's memory what it has no use for."""

from __future__ import annotations

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
