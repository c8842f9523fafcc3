"""The segment to which each partition of a producer goes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from smq_core.model.entities import Segment


@dataclass(frozen=True, slots=True)
class Span:
    """The partitions ``start .. stop - 1`` go to ``segment``."""

    start: int
    stop: int
    segment: Segment


@dataclass(frozen=True, slots=True)
class Route:
    """``spans`` are sorted and cover the ring."""

    spans: tuple[Span, ...]

    @staticmethod
    def of(segments: Iterable[Segment], partitions: int) -> Route:
        """Raises ValueError if the segments do not cover the ring once."""
        spans = sorted(spans_of(segments), key=lambda span: span.start)
        ends = [0, *(span.stop for span in spans)]
        if [span.start for span in spans] != ends[:-1] or ends[-1] != partitions:
            raise ValueError("the segments do not cover the ring")
        return Route(tuple(spans))

    @property
    def segments(self) -> tuple[Segment, ...]:
        return tuple({span.segment.name: span.segment for span in self.spans}.values())

    def replaced(self, old: Segment, by: Iterable[Span]) -> Route:
        """The partitions of ``old`` go where ``by`` says, if it has them; all others stay."""
        others = sorted(by, key=lambda span: span.start)
        spans: list[Span] = []
        for span in self.spans:
            if span.segment.name != old.name:
                _append(spans, span)
                continue
            at = span.start
            for other in others:
                start, stop = max(at, other.start), min(span.stop, other.stop)
                if start < stop:
                    _append(spans, Span(at, start, span.segment))
                    _append(spans, Span(start, stop, other.segment))
                    at = stop
            _append(spans, Span(at, span.stop, span.segment))
        return Route(tuple(spans))


def spans_of(segments: Iterable[Segment]) -> list[Span]:
    """All partitions of these segments."""
    return [Span(segment.range.start, segment.range.stop, segment) for segment in segments]


def _append(spans: list[Span], span: Span) -> None:
    """Joins neighbours of one segment; drops what is empty."""
    if span.start == span.stop:
        return
    if spans and spans[-1].segment.name == span.segment.name:
        spans[-1] = Span(spans[-1].start, span.stop, span.segment)
    else:
        spans.append(span)
