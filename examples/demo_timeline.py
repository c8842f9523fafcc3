"""The key space over time, as text: the primary of each part, and where segments begin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.text import Text

from smq import BrokerInfo, SegmentInfo, TopicInfo
from smq.cli.output.dashboard import COLORS

ROWS = 16
EVERY = 1.0


@dataclass(frozen=True, slots=True)
class _Moment:
    """One column. ``cells`` has a mark and the primary's number for each part of the key space.

    The mark is the primary's digit where a segment begins.
    """

    cells: tuple[tuple[str, int], ...]
    segments: int
    brokers: int


@dataclass(slots=True)
class Timeline:
    """Collects the leader's answers, one column a second."""

    _moments: list[_Moment] = field(default_factory=list)
    _at: float = float("-inf")

    @property
    def most_segments(self) -> int:
        return max((m.segments for m in self._moments), default=0)

    @property
    def most_brokers(self) -> int:
        return max((m.brokers for m in self._moments), default=0)

    def note(self, at: float, topic: TopicInfo, brokers: Sequence[BrokerInfo]) -> None:
        """Adds a column if the last one is old enough. ``at`` is in seconds of any clock."""
        if at - self._at < EVERY:
            return
        self._at = at
        self._moments.append(_Moment(_cells(topic), accepting(topic), alive(brokers)))

    def render(self, width: int) -> Text:
        """Draws parts of the key space as rows and seconds as columns, above the numbers of segments and brokers."""
        step = -(-len(self._moments) // max(1, width - 10))
        shown = self._moments[:: step or 1]
        made = Text("key space   a digit begins a segment: its primary, broker-1, broker-2, …\n", style="dim")
        for row in range(ROWS):
            made.append("          ")
            for moment in shown:
                mark, broker = moment.cells[row]
                made.append(mark, style=f"black on {COLORS[(broker - 1) % len(COLORS)]}" if broker else "")
            made.append("\n")
        made.append("segments  ", style="bold").append("".join(_digit(m.segments) for m in shown) + "\n")
        made.append("brokers   ", style="bold").append("".join(_digit(m.brokers) for m in shown))
        return made


def accepting(topic: TopicInfo) -> int:
    """The number of the topic's segments, without those that are being replaced."""
    return sum(not s.successors for s in topic.segments)


def alive(brokers: Sequence[BrokerInfo]) -> int:
    return sum(b.state in ("alive", "draining") for b in brokers)


def _cells(topic: TopicInfo) -> tuple[tuple[str, int], ...]:
    cells: list[tuple[str, int]] = []
    above = ""
    for row in range(ROWS):
        at = (2 * row + 1) * topic.partitions // (2 * ROWS)
        there = _covering(topic.segments, at)
        broker = _number(there.brokers[0]) if there is not None and there.brokers else 0
        name = there.name if there is not None else ""
        cells.append(("·" if name == above else _digit(broker), broker))
        above = name
    return tuple(cells)


def _covering(segments: Sequence[SegmentInfo], partition: int) -> SegmentInfo | None:
    """The segment that accepts messages of this partition. A pending one does not yet."""
    return next((s for s in segments if s.phase != "pending" and s.start <= partition < s.stop), None)


def _number(broker: str) -> int:
    digits = broker.rpartition("-")[2]
    return int(digits) if digits.isdigit() else 0


def _digit(number: int) -> str:
    return str(number) if number < 10 else "+"
