"""The formats of `smq publish` and `smq consume`, in a module that commands can import without Arrow."""

from __future__ import annotations

from enum import StrEnum


class OutputFormat(StrEnum):
    """How `smq consume` writes messages."""

    TEXT = "text"
    JSON = "json"
    PARQUET = "parquet"


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
