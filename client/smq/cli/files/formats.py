"""The formats of `smq publish` and `smq consume`, in a module that commands can import without Arrow."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from smq_core.errors import InvalidRequest


class OutputFormat(StrEnum):
    """How `smq consume` writes messages."""

    TEXT = "text"
    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"

    @classmethod
    def of_file(cls, path: Path) -> OutputFormat:
        """The format that the end of a file's name says; text without one. Raises InvalidRequest."""
        suffix = path.suffix.lower()
        if suffix and suffix not in _FORMAT_OF_SUFFIX:
            known = ", ".join(_FORMAT_OF_SUFFIX)
            raise InvalidRequest(
                f"--to {path}: no format has the suffix {suffix}. Those that have one are {known}; for any other name "
                "give the format by --format"
            )
        return cls(_FORMAT_OF_SUFFIX.get(suffix, cls.TEXT))


_FORMAT_OF_SUFFIX = {
    ".txt": "text",
    ".log": "text",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".csv": "csv",
    ".parquet": "parquet",
}


class Columns(StrEnum):
    """Which columns `smq consume` gives to messages of an older schema."""

    NEWEST = "newest"
    OWN = "own"


class InputFormat(StrEnum):
    """The format of the input of `smq publish`."""

    PARQUET = "parquet"
    CSV = "csv"
    JSON = "json"
    LINES = "lines"
