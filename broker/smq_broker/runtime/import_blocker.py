"""Blocks optional imports of libraries that a broker does not need. This saves 25 MB of memory."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType

BLOCKED_MODULES = frozenset(
    {
        # Arrow imports it at its first conversion of a time. That takes 35 MB, and half a second in which a seal waits.
        "pandas",
        # File systems of pyarrow.parquet. The broker uses obstore instead.
        "pyarrow._azurefs",
        "pyarrow._gcsfs",
        "pyarrow._hdfs",
        "pyarrow._s3fs",
        # Coloured tracebacks of structlog.
        "rich",
        "better_exceptions",
    }
)


class _BlockingFinder(importlib.abc.MetaPathFinder):
    """Reports that they are not installed. Every library that imports them works without."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname in BLOCKED_MODULES:
            raise ModuleNotFoundError(f"a broker does without {fullname}", name=fullname)
        return None


def block_imports() -> None:
    """Call it before anything else is imported. It affects the whole process."""
    if not any(isinstance(finder, _BlockingFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _BlockingFinder())
