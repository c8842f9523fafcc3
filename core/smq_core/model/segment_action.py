"""What can be done to open segments. A module without imports, because every command of the client loads it."""

from __future__ import annotations

from enum import StrEnum


class SegmentAction(StrEnum):
    SPLIT = "split"
    MERGE = "merge"
    MOVE = "move"
    ROLL = "roll"
