"""Clocks for functions that compare the leader's with the filer's."""

from __future__ import annotations

from datetime import UTC, datetime

from smq_operator.cleanup.filer_clock import ClockReading
from smq_operator.runtime.cleanup_settings import CleanupSettings

# A time in the year 2096, when everything that a test writes is old for the filer.
FAR = 4_000_000_000_000_000
LONG_AGO, NOW = datetime.fromtimestamp(0, UTC), datetime.fromtimestamp(FAR / 1e6, UTC)


# Files of removed segments are deleted at once.
NO_GRACE = CleanupSettings(removed_files_grace_us=0)


def leader_at(now: int) -> ClockReading:
    """The leader's clock says ``now`` (microseconds), and for the filer everything is old."""
    return ClockReading(leader=now, filer=FAR)
