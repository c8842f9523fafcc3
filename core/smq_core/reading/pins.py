"""Pins of readers: which files a pin keeps, and when it ends.

A reader creates a pin before it reads the index, and then reads files that the index names, perhaps for hours.
Retention removes segments from the index meanwhile, but their files stay as long as the pin lives.

A pin records the numbers of the segments that were removed before it was created. Its reader cannot find those in the
index. It covers all other segments, also those that are sealed later. No two clocks are compared for that.
"""

from __future__ import annotations

from dataclasses import dataclass

from smq_core.model.entities import SECOND, Micros
from smq_core.model.interval_set import EMPTY, IntervalSet, contains

DEFAULT_LIFETIME: Micros = 600 * SECOND
# The filer's times are whole seconds, so a much shorter lifetime would be none.
MIN_LIFETIME: Micros = 5 * SECOND

# The least difference of two of the filer's times that counts: seconds are cut, and an answer may be late.
CLOCK_MARGIN: Micros = 60 * SECOND


@dataclass(frozen=True, slots=True)
class ReaderPin:
    """A pin as its reader wrote it.

    ``owner`` says who reads. ``lifetime`` is how long the pin lives after its last renewal. ``removed`` has the numbers
    of the segments that it does not cover. ``created_at`` is the filer's time of its creation; None before the first
    renewal. ``ended`` is set once, by the leader, and nothing follows.
    """

    owner: str
    lifetime: Micros
    removed: IntervalSet = EMPTY
    created_at: Micros | None = None
    ended: bool = False
    writer: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPin:
    """A pin in the filer, with its etag, and the filer's time of its last renewal (``renewed_at``).

    ``problem`` says why it cannot be read; it counts as a pin of everything until it is too old.
    """

    id: str
    pin: ReaderPin
    etag: str
    renewed_at: Micros
    problem: str = ""

    @property
    def created_at(self) -> Micros:
        """The filer's time of the creation."""
        created_at = self.pin.created_at
        return self.renewed_at if created_at is None else min(created_at, self.renewed_at)

    def covers(self, number: int) -> bool:
        """Whether it keeps the files of the segment with this number."""
        return not contains(self.pin.removed, number)

    def needs_superseded(self, number: int, since: Micros) -> bool:
        """Whether its reader may plan with chunks of this segment that are superseded since then, by the filer's time.

        A reader plans from an index that it reads after it has created its pin. So one that created it later plans from
        the file list that does not use them.
        """
        return bool(self.problem) or (self.covers(number) and self.created_at <= since + CLOCK_MARGIN)

    def expires_at(self, max_age: Micros, renewable_since: Micros = 0) -> Micros:
        """The filer's time from which on it protects nothing, if it is not renewed. ``max_age`` caps its whole age.

        ``renewable_since``: since when the filer certainly answers. Nobody can renew a pin before, so its lifetime
        begins then at the earliest.
        """
        return min(max(self.renewed_at, renewable_since) + self.pin.lifetime, self.created_at + max_age)
