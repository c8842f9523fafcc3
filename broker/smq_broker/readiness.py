"""A new broker is not ready while another one drains, which paces a rollout: one at a time is replaced.

It is a broker like any other meanwhile; only who counts ready Pods waits. Once it was ready, it stays so.
"""

from __future__ import annotations

AT_MOST = 60.0
"""Seconds. A drain that takes longer is not waited for."""
FIRST_ANSWER = 5.0
"""Seconds for a leader to say whether one drains; without any leader nobody drains in order."""


class Readiness:
    """Times are seconds of a clock that never jumps. ``led``: the broker knows of a leader."""

    def __init__(self, led: bool, now: float) -> None:
        self._began = now
        self._ready = not led

    def why_not(self, others_drain: bool | None, now: float) -> str | None:
        """Why it should not count as ready yet, or None. ``others_drain``: as a leader last said, None before."""
        waited = now - self._began
        if not self._ready and others_drain is None and waited < FIRST_ANSWER:
            return "waiting for a leader"
        if not self._ready and others_drain and waited < AT_MOST:
            return "another broker drains"
        self._ready = True
        return None
