"""About when each message of a segment was appended, interpolated between reports of the segment's watermark.

A report says that all messages below the watermark were appended by then. A few of these points are kept for each
segment. Old ones are thinned out, so the estimate becomes coarser the older a message is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection
from dataclasses import dataclass, field

from smq_core.model.entities import Micros

# per segment
MAX_POINTS = 32


@dataclass(slots=True)
class WatermarkHistory:
    """Times and watermarks of one segment, both in ascending order. The first point is the segment's opening."""

    times: list[Micros]
    watermarks: list[int]

    def add(self, now: Micros, watermark: int) -> None:
        """Takes a report. While nothing is appended, only the time of the last point moves."""
        watermark = max(watermark, self.watermarks[-1])
        if len(self.watermarks) > 1 and self.watermarks[-2] == self.watermarks[-1] == watermark:
            self.times[-1] = max(now, self.times[-1])
            return
        self.times.append(max(now, self.times[-1]))
        self.watermarks.append(watermark)
        if len(self.times) > MAX_POINTS:
            self.times = [self.times[0], *self.times[1:-2:2], *self.times[-2:]]
            self.watermarks = [self.watermarks[0], *self.watermarks[1:-2:2], *self.watermarks[-2:]]

    def time_of(self, offset: int) -> Micros | None:
        """About when this message was appended. None if no report has it."""
        after = bisect_right(self.watermarks, offset)
        if after == len(self.watermarks):
            return None
        if after == 0:
            return self.times[0]
        start, first = self.times[after - 1], self.watermarks[after - 1]
        stop, last = self.times[after], self.watermarks[after]
        return start + (stop - start) * (offset - first) // (last - first)


@dataclass(slots=True)
class AppendTimes:
    """The histories of the segments of one topic."""

    histories: dict[str, WatermarkHistory] = field(default_factory=dict)

    def observe(self, segment: str, opened_at: Micros, watermark: int, now: Micros) -> None:
        """A living segment has this watermark now."""
        history = self.histories.get(segment)
        if history is None:
            history = self.histories[segment] = WatermarkHistory([min(opened_at, now)], [0])
        history.add(now, watermark)

    def keep(self, segments: Collection[str]) -> None:
        """Forgets all other segments."""
        self.histories = {name: it for name, it in self.histories.items() if name in segments}

    def time_of(self, segment: str, offset: int) -> Micros | None:
        """About when this message was appended. None if that is not known."""
        history = self.histories.get(segment)
        return history.time_of(offset) if history is not None else None
