"""A timeout for repeated requests to one server, which may be gone or only slow."""

from __future__ import annotations

PAUSE_AFTER_REJECTION_SECONDS = 1.0
# After a request that timed out, none is sent for its timeout times this.
PAUSE_SHARE = 3.0


class AdaptiveTimeout:
    """How long the next request may take, and when it may be sent. All times are in (monotonic) seconds.

    A server that is gone never answers, and requests to others must not wait for it. One on a busy machine may need
    longer than the first timeout for every answer: if that never grew, no request would ever succeed. So each timeout
    makes the next one longer, up to ``maximum``, and the pause after it too.
    """

    def __init__(self, minimum: float, maximum: float) -> None:
        self._minimum = minimum
        self._maximum = maximum
        self._paused_until = float("-inf")
        self.seconds = minimum
        """The timeout of the next request."""

    def may_send(self, now: float) -> bool:
        return now >= self._paused_until

    def answered(self) -> None:
        """Also by an error."""
        self.seconds = self._minimum

    def failed(self, sent_at: float, now: float) -> None:
        """There was no answer. What failed before its timeout was rejected, so a longer timeout would not help."""
        if now - sent_at < 0.9 * self.seconds:
            self._paused_until = now + PAUSE_AFTER_REJECTION_SECONDS
            return
        self._paused_until = now + max(PAUSE_AFTER_REJECTION_SECONDS, PAUSE_SHARE * self.seconds)
        self.seconds = min(2 * self.seconds, self._maximum)
