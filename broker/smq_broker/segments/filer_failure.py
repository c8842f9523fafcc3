"""Since when the filer does not take the chunks of a segment, and what it answers."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(slots=True)
class FilerFailure:
    """``since`` is of the monotonic clock; None while the last write succeeded."""

    since: float | None = None
    message: str = ""

    def failed(self, message: str) -> None:
        self.since = self.since or time.monotonic()
        self.message = message

    def answered(self) -> None:
        self.since, self.message = None, ""
