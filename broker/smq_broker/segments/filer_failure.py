"""Since when the filer does not take the chunks of a segment, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass

from smq_storage.thread_runtime import monotonic

# A filer that hangs answers nothing until the request's timeout, which is much longer. Slow writes take less.
UNANSWERED_SECONDS = 5.0


@dataclass(slots=True)
class FilerFailure:
    """Times are of the monotonic clock. ``failure`` is None while the last write that ended succeeded.

    It is replaced as a whole, because reports read it without the segment's lock.
    """

    failure: tuple[float, str] | None = None
    """Since when, and the filer's last answer."""
    write_began: float | None = None

    def began(self) -> None:
        """A write begins; ``failed`` or ``answered`` follows."""
        self.write_began = monotonic()

    def failed(self, message: str) -> None:
        since = self.failure[0] if self.failure is not None else self.write_began or monotonic()
        self.failure, self.write_began = (since, message), None

    def answered(self) -> None:
        self.failure, self.write_began = None, None

    def lasting(self, now: float) -> tuple[float, str] | None:
        """Since when writes fail or have no answer, and why; None if the filer takes them."""
        failure, began = self.failure, self.write_began
        if failure is not None:
            return failure
        if began is None or now - began < UNANSWERED_SECONDS:
            return None
        return began, "the write of a chunk has no answer yet"
