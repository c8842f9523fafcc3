"""The load of one segment, from the counters that its primary reports: rates over two windows, a slope, a histogram.

Rates are exponentially weighted: the fast one reacts within seconds (splits), the slow one within a minute (merges), or
sooner when the topic wants to merge sooner.
The histogram counts messages per equal slice of the segment's range and decays with the fast window.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from smq_core.model import SECOND

FAST_WINDOW = 2 * SECOND
SLOW_WINDOW = 30 * SECOND
MAX_RATE = 1e12
"""Per second, of whatever: nothing real is beyond it."""
MAX_SLICES = 1024


@dataclass(frozen=True, slots=True)
class Counters:
    """Totals since the segment opened at its primary."""

    messages: int = 0
    bytes: int = 0
    batches: int = 0
    histogram: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Rates:
    """Per second."""

    messages: float = 0.0
    bytes: float = 0.0
    batches: float = 0.0

    def toward(self, other: Rates, weight: float) -> Rates:
        """This, moved by ``weight`` (0..1) of the way to ``other``."""
        return Rates(
            self.messages + (other.messages - self.messages) * weight,
            self.bytes + (other.bytes - self.bytes) * weight,
            self.batches + (other.batches - self.batches) * weight,
        )

    def since(self, before: Rates, seconds: float) -> Rates:
        """The change from ``before`` to this, per second; negative when it fell."""
        return Rates(
            (self.messages - before.messages) / seconds,
            (self.bytes - before.bytes) / seconds,
            (self.batches - before.batches) / seconds,
        )

    def plus(self, other: Rates, times: float = 1.0) -> Rates:
        """This and so many times the other, never below zero."""
        return Rates(
            max(0.0, self.messages + other.messages * times),
            max(0.0, self.bytes + other.bytes * times),
            max(0.0, self.batches + other.batches * times),
        )


@dataclass(slots=True)
class SegmentLoad:
    """What is known of one segment's load. ``shape`` has a weight for each slice of the range; empty: even."""

    fast: Rates = field(default_factory=Rates)
    slow: Rates = field(default_factory=Rates)
    slope: Rates = field(default_factory=Rates)
    shape: list[float] = field(default_factory=list)
    observed: int = 0
    _last: Counters | None = None
    _last_at: int = 0

    @property
    def nothing(self) -> bool:
        """True when nobody writes, nor has for long."""
        fast, slow = self.fast, self.slow
        return not (fast.messages or fast.bytes or fast.batches or slow.messages or slow.bytes or slow.batches)

    def observe(self, now: int, counters: Counters, slow_window: int | None = None) -> bool:
        """Takes a report. False, and nothing changes, when it is absurd: time or counters that go back, or no numbers.

        ``slow_window`` (microseconds) is by default ``SLOW_WINDOW``.
        The rates are zero until the second report: the first one says nothing about when it was counted.
        """
        last, elapsed = self._last, now - self._last_at
        if last == counters and elapsed > 0 and self.observed and self.nothing:
            self._last_at = now  # most segments are at rest most of the time
            self.observed += 1
            return True
        if self.objection(now, counters) is not None:
            return False
        if last is None:
            self._last, self._last_at = counters, now
            return True
        if elapsed <= 0 or counters.messages < last.messages or counters.bytes < last.bytes:
            return False
        seconds = elapsed / SECOND
        rates = Rates(
            (counters.messages - last.messages) / seconds,
            (counters.bytes - last.bytes) / seconds,
            max(0, counters.batches - last.batches) / seconds,
        )
        weight = 1 - math.exp(-elapsed / FAST_WINDOW)
        if self.observed:
            before = self.fast
            self.fast = before.toward(rates, weight)
            self.slope = self.slope.toward(self.fast.since(before, seconds), weight)
            self.slow = self.slow.toward(rates, 1 - math.exp(-elapsed / (slow_window or SLOW_WINDOW)))
        else:
            # The first rate is all that is known: nothing to rise from, and no slope.
            self.fast = self.slow = rates
        self._shape(last.histogram, counters.histogram, weight)
        self._last, self._last_at = counters, now
        self.observed += 1
        return True

    def objection(self, now: int, counters: Counters) -> str | None:
        """Why these counters cannot be true, in words; None when they can."""
        if counters == self._last:
            return None
        values = (counters.messages, counters.bytes, counters.batches, *counters.histogram[:MAX_SLICES])
        if len(counters.histogram) > MAX_SLICES:
            return f"a histogram of {len(counters.histogram)} slices"
        if not all(isinstance(v, int) and 0 <= v < MAX_RATE * 1e6 for v in values):
            return "counters that are no numbers, negative, or beyond everything that could be counted"
        if self._last is None or now <= self._last_at:
            return None
        seconds = (now - self._last_at) / SECOND
        was, grown = (self._last.messages, self._last.bytes, self._last.batches), values[:3]
        if any(b - a > MAX_RATE * max(seconds, 1.0) for a, b in zip(was, grown, strict=True)):
            return f"counters that grew from {was} to {grown} in {seconds:.1f} s"
        return None

    def heir(self) -> SegmentLoad:
        """What is known of the load of a segment that takes the place of this one, with the same range."""
        return SegmentLoad(self.fast, self.slow, self.slope, list(self.shape), self.observed)

    def _shape(self, before: Sequence[int], after: Sequence[int], weight: float) -> None:
        if len(after) != len(self.shape):
            self.shape = [float(count) for count in after]
            return
        if len(before) != len(after):
            return
        grown = [max(0, b - a) for a, b in zip(before, after, strict=True)]
        if any(grown):
            total, old = sum(grown), sum(self.shape) or 1.0
            self.shape = [s / old * (1 - weight) + g / total * weight for s, g in zip(self.shape, grown, strict=True)]


def slow_window(merge_after: int) -> int:
    """A topic that merges sooner than most forgets a flood sooner too, or ``mergeAfter`` would not be what it says."""
    return min(SLOW_WINDOW, max(FAST_WINDOW, merge_after))
