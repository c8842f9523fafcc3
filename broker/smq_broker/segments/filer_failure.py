"""Since when the filer does not take the chunks of a segment, and what it answers."""

from __future__ import annotations

import time
from dataclasses import dataclass

UNANSWERED_SECONDS = 5.0
"""A filer that hangs answers nothing until the request's timeout, which is much longer. Slow writes take less."""


@dataclass(slots=True)
class FilerFailure:
    """Times are of the monotonic clock. ``since`` is None while the last write that ended succeeded."""

    since: float | None = None
    message: str = ""
    write_began: float | None = None

    def began(self) -> None:
        """A write begins; ``failed`` or ``answered`` follows."""
        self.write_began = time.monotonic()

    def failed(self, message: str) -> None:
        self.since = self.since or self.write_began or time.monotonic()
        self.message, self.write_began = message, None

    def answered(self) -> None:
        self.since, self.message, self.write_began = None, "", None

    def lasting(self, now: float) -> tuple[float, str] | None:
        """Since when writes fail or have no answer, and why; None if the filer takes them."""
        if self.since is not None:
            return self.since, self.message
        began = self.write_began
        if began is None or now - began < UNANSWERED_SECONDS:
            return None
        return began, "the write of a chunk has no answer yet"
