"""The leader's clock beside the filer's, because nothing may be deleted on the word of one host's clock.

The leader reads its machine's clock once, at its start, so a machine whose clock is wrong at that moment makes a leader
whose dates are wrong until it ends. Ages are therefore measured twice: from the time that a leader wrote into a
document to the leader's time now, and from the filer's time of the object's last change to the filer's time now. The
smaller age counts. So a wrong clock of one host, now or when the document was written, only delays a deletion.
"""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from smq_core.errors import StoreUnavailable
from smq_operator.runtime.clock import Clock
from smq_operator.runtime.store_pool import StorePool
from smq_storage.catalog.filer_time import read_filer_time

log = structlog.get_logger(__name__)

MEASURE_INTERVAL_US = 30_000_000
# Clocks that differ by less than this are not reported.
SKEW_TOLERANCE_US = 60_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockReading:
    """The same moment on the leader's clock and on the filer's, in microseconds.

    The filer's may be late by ``delay`` at most, which is how long it took to measure it: a leader may be paused. It
    was measured at ``measured_at`` of the leader's clock, which continues it since then. ``answers_since`` is the
    filer's time since when it certainly answers: before that nobody could change anything there.
    """

    leader: int
    filer: int
    delay: int = 0
    measured_at: int = 0
    answers_since: int = 0

    @property
    def latest_filer(self) -> int:
        """The filer's time is not later than this, but for the second to which it is rounded."""
        return self.filer + self.delay

    @property
    def earliest(self) -> int:
        return min(self.leader, self.filer)

    @property
    def skew_us(self) -> int:
        """How far the leader's clock is ahead of the filer's."""
        return self.leader - self.filer

    def age(self, written_at: int, modified_at: int | None) -> int:
        """The age of what a leader wrote at ``written_at`` of its clock, and the filer at ``modified_at`` of its clock.

        ``modified_at`` None: the object does not exist any more.
        """
        age = self.leader - written_at
        return age if modified_at is None else min(age, self.filer - modified_at)


class FilerClock:
    """Reads both clocks. It measures every MEASURE_INTERVAL_US; between that both advance alike."""

    def __init__(self, store: StorePool, clock: Clock) -> None:
        self._store = store
        self._now = clock
        self._measured: ClockReading | None = None
        self._answers_since = self._failures = 0
        self.problem = ""
        """Why the leader could not write to the filer the last time; empty if it could."""
        self.skew_us: int | None = None
        """The last skew, in microseconds; None until it was measured."""

    async def read(self) -> ClockReading:
        """Both clocks now. Raises StoreUnavailable."""
        measured = self._measured
        # After a failed call it is measured at once, because that writes an object: it shows whether the filer does.
        failures = self._store.failures
        if measured is None or failures != self._failures or self._now() - measured.leader >= MEASURE_INTERVAL_US:
            began = self._now()
            try:
                filer = await self._store.run(read_filer_time)
            except StoreUnavailable as error:
                self.problem = error.message
                raise
            self.problem, self._failures = "", failures
            if measured is None or began - measured.leader > 2 * MEASURE_INTERVAL_US:
                self._answers_since = filer  # it did not answer for a while, or this leader cannot know
            # The object was written after ``began``. If that is counted as one moment, the filer's time may be late by
            # the duration of the calls, and never early.
            ended = self._now()
            measured = self._measured = ClockReading(leader=ended, filer=filer, delay=ended - began, measured_at=ended)
            self._report(ClockReading(leader=began, filer=filer))
        now = self._now()
        return ClockReading(
            leader=now,
            filer=measured.filer + now - measured.leader,
            delay=measured.delay,
            measured_at=measured.leader,
            answers_since=self._answers_since,
        )

    def _report(self, reading: ClockReading) -> None:
        was, self.skew_us = self.skew_us, reading.skew_us
        skewed = abs(reading.skew_us) > SKEW_TOLERANCE_US
        if skewed and (was is None or abs(was) <= SKEW_TOLERANCE_US):
            log.error(
                "clock.skewed",
                leader_ahead_seconds=round(reading.skew_us / 1e6),
                advice="correct the clock of this machine or of the filer, then restart this process, which reads its "
                "machine's clock at its start only; until then retention by age may remove segments late",
            )
        elif not skewed and was is not None and abs(was) > SKEW_TOLERANCE_US:
            log.info("clock.skew_ended")
