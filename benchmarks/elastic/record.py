"""The record of a run: samples of each second, the life of each segment, and the decisions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from smq_core.model.keyspace import KeyRange


@dataclass(frozen=True, slots=True)
class Sample:
    """One second. Rates are messages per second, ``behind`` is the producers' backlog in messages."""

    second: int
    offered: float
    accepted: float
    behind: float
    segments: int
    brokers: int
    overload: float
    """Sum over the segments of what is offered above the target, in targets."""
    pressures: tuple[float, ...] = ()
    """What is offered to each segment, in targets, in the order of the ring."""
    wide: tuple[bool, ...] = ()
    """Which of these segments have more than one partition, and so could be cut."""
    broker_loads: tuple[float, ...] = ()
    """Each broker's bytes per second as a share of what it can carry."""


@dataclass(slots=True)
class Span:
    """The life of one segment, in seconds, with its offered pressure, a value for each ``every`` seconds.

    The first value is of the time before ``opened``.
    """

    range: KeyRange
    opened: float
    closed: float | None = None
    pressures: list[float] = field(default_factory=list)
    every: float = 1.0


@dataclass(frozen=True, slots=True)
class Event:
    """A decision: ``split``, ``merge``, ``rebalance``, ``drain``, ... and the part of the ring that it touches."""

    second: float
    action: str
    range: KeyRange
    parts: int
    reason: str


@dataclass(frozen=True, slots=True)
class Note:
    """Something that happened, in words: what went wrong, or what was decided and why."""

    second: float
    words: str


@dataclass
class Record:
    """Of one run of one system."""

    name: str
    partitions: int
    target: float
    samples: list[Sample] = field(default_factory=list)
    spans: dict[str, Span] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    hot: dict[int, int] = field(default_factory=dict)
    """Partitions that were reported as hot, and when first."""

    def see(self, second: int, open_now: Iterable[tuple[str, KeyRange, float]]) -> None:
        """Takes down which segments there are, and their pressures."""
        seen = set()
        for name, range_, pressure in open_now:
            seen.add(name)
            span = self.spans.get(name)
            if span is None:
                span = self.spans[name] = Span(range_, second)
            span.pressures.append(pressure)
        for name, span in self.spans.items():
            if span.closed is None and name not in seen:
                span.closed = second

    def changes(self, *actions: str) -> list[Event]:
        """The decisions of these kinds; all but the creation when none is named."""
        return [e for e in self.events if (e.action in actions if actions else e.action != "create")]

    def relieved_at(self, since: int) -> int | None:
        """The first second from ``since`` on after which no segment that can be cut is above its target.

        None when that is not reached before the offered load falls back below one target, or the run ends.
        """
        for sample in self.samples:
            if sample.second < since:
                continue
            if all(p <= 1.0 or not w for p, w in zip(sample.pressures, sample.wide, strict=True)):
                return sample.second
        return None

    def overload(self) -> float:
        """The time integral of overload, in target-seconds."""
        return sum(s.overload for s in self.samples)
