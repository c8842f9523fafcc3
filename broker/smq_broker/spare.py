"""Modules that a broker's libraries would import and that it has no use for: 25 MB of its memory at rest."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType

SPARED = frozenset(
    {
        # Arrow looks for it at its first conversion of a time: half a second, that no seal may wait, and 35 MB.
        "pandas",
        # File systems of pyarrow.parquet; the filer is reached by obstore.
        "pyarrow._azurefs",
        "pyarrow._gcsfs",
        "pyarrow._hdfs",
        "pyarrow._s3fs",
        # Colourful tracebacks of structlog.
        "rich",
        "better_exceptions",
    }
)


class _Refuse(importlib.abc.MetaPathFinder):
    """Says that they are not there; all who would import them do without."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname in SPARED:
            raise ModuleNotFoundError(f"a broker does without {fullname}", name=fullname)
        return None


def refuse_imports() -> None:
    """To be called in a process of its own, before anything else is imported."""
    if not any(isinstance(finder, _Refuse) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Refuse())
