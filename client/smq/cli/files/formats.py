"""The formats of `smq publish` and `smq consume`, in a module that commands can import without Arrow."""

from __future__ import annotations

from enum import StrEnum


class OutputFormat(StrEnum):
    """How `smq consume` writes messages."""

    TEXT = "text"
    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"

    @classmethod
    def of_file(cls, name: str) -> OutputFormat:
        """The format that the end of a file's name says; text for any other."""
        suffix = name.lower().partition(".")[2].rpartition(".")[2]
        if suffix in ("jsonl", "ndjson"):
            return cls.JSON
        return cls(suffix) if suffix in ("json", "csv", "parquet") else cls.TEXT


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
