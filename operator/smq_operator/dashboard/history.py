"""The key space of every topic over time: which ranges there were, and how loaded each was. Bounded, without a clock.

A *column* is one topic at one moment. It has the first partition and the load of each range, in the order of the ring,
so a range ends where the next one begins. A *round* has the columns of all topics at one moment.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from smq_core.model.entities import Layout, Micros, Phase, TopicSpec
from smq_core.scaling.autoscaler import pressure
from smq_core.scaling.segment_load import MeasuredLoad, TrafficRates

# The level of a load of exactly the target. The highest level, 255, stands for all above five targets.
LEVELS_PER_TARGET = 50
# The most ranges of a column. Of more, neighbours are shown as one with the highest load among them.
MAX_RANGES = 512
MAX_ROUNDS = 900
MAX_COLUMNS = 45_000
# The oldest rounds are dropped beyond any of these.
#
# A range takes three bytes and a column about 400, so all of it takes about 25 MB at most.
MAX_TOTAL_RANGES = 2_000_000


@dataclass(frozen=True, slots=True)
class Column:
    """``rates`` are those of the whole topic per second."""

    starts: array[int]
    levels: bytes
    rates: TrafficRates


@dataclass(frozen=True, slots=True)
class Round:
    at: Micros
    columns: Mapping[str, Column]

    @property
    def ranges(self) -> int:
        return sum(len(column.levels) for column in self.columns.values())


class KeyspaceHistory:
    """The last rounds, oldest first."""

    def __init__(
        self, max_rounds: int = MAX_ROUNDS, max_columns: int = MAX_COLUMNS, max_ranges: int = MAX_TOTAL_RANGES
    ) -> None:
        self._limits = max_rounds, max_columns, max_ranges
        self._rounds: deque[Round] = deque()
        self._columns = 0
        self._ranges = 0

    def __len__(self) -> int:
        return len(self._rounds)

    def add(self, at: Micros, columns: Mapping[str, Column]) -> None:
        """Takes in a round, and drops the oldest ones beyond the limits. The newest one always stays."""
        newest = Round(at, columns)
        self._rounds.append(newest)
        self._columns += len(columns)
        self._ranges += newest.ranges
        max_rounds, max_columns, max_ranges = self._limits
        while len(self._rounds) > 1 and (
            len(self._rounds) > max_rounds or self._columns > max_columns or self._ranges > max_ranges
        ):
            oldest = self._rounds.popleft()
            self._columns -= len(oldest.columns)
            self._ranges -= oldest.ranges

    def columns(self, topic: str, after: Micros = 0) -> Iterator[tuple[Micros, Column]]:
        """The columns of a topic that are younger than ``after``, oldest first."""
        for each in self._rounds:
            if each.at > after and (column := each.columns.get(topic)) is not None:
                yield each.at, column


def column_of(layout: Layout, spec: TopicSpec, loads: Mapping[str, MeasuredLoad], rates: TrafficRates) -> Column:
    """The topic as it is now. Open and sealing segments cover the ring exactly; pending ones take no messages yet."""
    ordered = sorted(
        (s for s in layout.segments if s.phase in (Phase.OPEN, Phase.SEALING)), key=lambda s: s.range.start
    )
    found = [(s.range.start, _level(loads.get(s.name), spec)) for s in ordered]
    step = -(-len(found) // MAX_RANGES) or 1
    groups = [found[at : at + step] for at in range(0, len(found), step)]
    starts = array("H", (group[0][0] for group in groups))
    return Column(starts, bytes(max(level for _, level in group) for group in groups), rates)


def _level(load: MeasuredLoad | None, spec: TopicSpec) -> int:
    return min(255, round(pressure(load.fast, spec) * LEVELS_PER_TARGET)) if load is not None else 0
