"""The formats of `smq publish` and `smq consume`, apart from the code that needs Arrow for them."""

from __future__ import annotations

from enum import StrEnum


class Form(StrEnum):
    """How `smq consume` writes messages."""

    TEXT = "text"
    JSON = "json"
    PARQUET = "parquet"


class Format(StrEnum):
    """How the input of `smq publish` is written."""

    PARQUET = "parquet"
    CSV = "csv"
    JSON = "json"
    LINES = "lines"
