"""Measures the load of one segment from its primary's counters: rates over two windows, a slope, a histogram.

Rates are exponentially weighted. The fast one reacts within seconds (splits), the slow one within a minute (merges), or
sooner if the topic's ``merge_after`` is shorter.
The histogram counts messages per equal slice of the segment's range and decays with the fast window.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from smq_core.model.entities import SECOND, Micros

FAST_WINDOW: Micros = 2 * SECOND
SLOW_WINDOW: Micros = 30 * SECOND
# The shortest time for the first rate, which counts fully in both windows. A broker reports each second, but to a new
# leader twice in a moment: the few messages between those two would be a rate of many times the load.
MIN_FIRST_INTERVAL: Micros = SECOND // 2
# Per second, for every counter: no real rate is higher.
MAX_RATE = 1e12
MAX_SLICES = 1024


@dataclass(frozen=True, slots=True)
class TrafficCounters:
    """Totals since the segment opened at its primary."""

    messages: int = 0
    bytes: int = 0
    batches: int = 0
    histogram: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TrafficRates:
    """Per second."""

    messages: float = 0.0
    bytes: float = 0.0
    batches: float = 0.0

    def toward(self, other: TrafficRates, weight: float) -> TrafficRates:
        """This, moved by ``weight`` (0..1) of the way to ``other``."""
        return TrafficRates(
            self.messages + (other.messages - self.messages) * weight,
            self.bytes + (other.bytes - self.bytes) * weight,
            self.batches + (other.batches - self.batches) * weight,
        )

    def since(self, before: TrafficRates, seconds: float) -> TrafficRates:
        """The change from ``before`` to this, per second; negative when it fell."""
        return TrafficRates(
            (self.messages - before.messages) / seconds,
            (self.bytes - before.bytes) / seconds,
            (self.batches - before.batches) / seconds,
        )

    def plus(self, other: TrafficRates, times: float = 1.0) -> TrafficRates:
        """This and ``times`` times the other, never below zero."""
        return TrafficRates(
            max(0.0, self.messages + other.messages * times),
            max(0.0, self.bytes + other.bytes * times),
            max(0.0, self.batches + other.batches * times),
        )


@dataclass(slots=True, kw_only=True)
class MeasuredLoad:
    """What is known of one segment's load. ``shape`` has a weight for each slice of the range; empty: even."""

    fast: TrafficRates = field(default_factory=TrafficRates)
    slow: TrafficRates = field(default_factory=TrafficRates)
    slope: TrafficRates = field(default_factory=TrafficRates)
    shape: list[float] = field(default_factory=list)
    observed: int = 0
    _last: TrafficCounters | None = None
    _last_at: Micros = 0

    @property
    def is_idle(self) -> bool:
        """True if there are no writes, and have been none for long."""
        fast, slow = self.fast, self.slow
        return not (fast.messages or fast.bytes or fast.batches or slow.messages or slow.bytes or slow.batches)

    def observe(self, now: Micros, counters: TrafficCounters, slow_window: Micros | None = None) -> bool:
        """Takes a report. False, and ignored, if it is invalid: time or counters that go back, or no numbers.

        ``slow_window`` is by default ``SLOW_WINDOW``. The first report does not show over which time it counted, so the
        rates are zero until one that is ``MIN_FIRST_INTERVAL`` later.
        """
        last, elapsed = self._last, now - self._last_at
        if last == counters and elapsed > 0 and self.observed and self.is_idle:
            self._last_at = now  # most segments are idle most of the time
            self.observed += 1
            return True
        if self.validation_error(now, counters) is not None:
            return False
        if last is None:
            self._last, self._last_at = counters, now
            return True
        if elapsed < 0 or counters.messages < last.messages or counters.bytes < last.bytes:
            return False
        if not self.observed and elapsed < MIN_FIRST_INTERVAL:
            # Reports that waited arrive together. The newest one has everything that was counted before the interval.
            self._last = counters
            return True
        if elapsed == 0:
            return False
        seconds = elapsed / SECOND
        rates = TrafficRates(
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
            # With only one rate there is no slope yet.
            self.fast = self.slow = rates
        self._shape(last.histogram, counters.histogram, weight)
        self._last, self._last_at = counters, now
        self.observed += 1
        return True

    def validation_error(self, now: Micros, counters: TrafficCounters) -> str | None:
        """Why these counters are invalid; None if they are valid."""
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
        was, increments = (self._last.messages, self._last.bytes, self._last.batches), values[:3]
        if any(b - a > MAX_RATE * max(seconds, 1.0) for a, b in zip(was, increments, strict=True)):
            return f"counters that grew from {was} to {increments} in {seconds:.1f} s"
        return None

    def copy_for_successor(self) -> MeasuredLoad:
        """The load for a successor with the same range."""
        return MeasuredLoad(
            fast=self.fast, slow=self.slow, slope=self.slope, shape=list(self.shape), observed=self.observed
        )

    def _shape(self, before: Sequence[int], after: Sequence[int], weight: float) -> None:
        if len(after) != len(self.shape):
            self.shape = [float(count) for count in after]
            return
        if len(before) != len(after):
            return
        increments = [max(0, b - a) for a, b in zip(before, after, strict=True)]
        if any(increments):
            total, old = sum(increments), sum(self.shape) or 1.0
            self.shape = [
                s / old * (1 - weight) + g / total * weight for s, g in zip(self.shape, increments, strict=True)
            ]


def slow_window(merge_after: Micros) -> Micros:
    """The slow window for a topic. A short ``mergeAfter`` needs a short window, or a past flood would delay merges."""
    return min(SLOW_WINDOW, max(FAST_WINDOW, merge_after))
