"""Where a new group begins to read, unless it names positions."""

from __future__ import annotations

from enum import StrEnum


class GroupStart(StrEnum):
    EARLIEST = "earliest"
    LATEST = "latest"
