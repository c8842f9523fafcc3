"""The live picture of `smq top` and of the demo: keyspace, segments, brokers, the leader's last decisions.

Pure: what the leader said, and when, in; something that rich can draw out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from smq.cli import words
from smq.cli.tables import Cell, phase, state, table, yes

if TYPE_CHECKING:
    from smq import Admin, BrokerInfo, DecisionInfo, SegmentInfo, TopicInfo

COLORS = ("cyan", "magenta", "yellow", "green", "blue", "red", "bright_cyan", "bright_magenta", "bright_yellow")
RATE_WINDOW = 4.0
MAX_SEGMENTS = 16
MAX_BROKERS = 12
MAX_TOPICS = 6
MIN_CELLS = 4
"""With fewer columns for each segment than this, on average, bars of load say more than names of brokers."""
BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the leader said at one moment; ``at`` in seconds of a monotonic clock."""

    at: float
    topics: Sequence[TopicInfo]
    brokers: Sequence[BrokerInfo]
    decisions: Sequence[DecisionInfo]


def snapshot(admin: Admin, at: float) -> Snapshot:
    """Asks the leader. Raises Unavailable."""
    return Snapshot(at, admin.topics(), admin.brokers(), admin.decisions())


@dataclass(slots=True)
class Rates:
    """Messages and bytes per second of each segment, from what its primary has counted over the last seconds."""

    _seen: dict[str, deque[tuple[float, int, int]]] = field(default_factory=dict)

    def update(self, shot: Snapshot) -> None:
        counts = {s.segment: (s.messages, s.bytes) for b in shot.brokers for s in b.segments if s.primary}
        self._seen = {name: seen for name, seen in self._seen.items() if name in counts}
        for name, (messages, nbytes) in counts.items():
            seen = self._seen.setdefault(name, deque())
            seen.append((shot.at, messages, nbytes))
            while len(seen) > 2 and shot.at - seen[0][0] > RATE_WINDOW:
                seen.popleft()

    def of(self, segment: str) -> tuple[float, float]:
        seen = self._seen.get(segment)
        if not seen or seen[-1][0] <= seen[0][0]:
            return 0.0, 0.0
        seconds = seen[-1][0] - seen[0][0]
        return (seen[-1][1] - seen[0][1]) / seconds, (seen[-1][2] - seen[0][2]) / seconds

    def total(self) -> tuple[float, float]:
        both = [self.of(name) for name in self._seen]
        return sum(m for m, _ in both), sum(b for _, b in both)


def draw(shot: Snapshot, rates: Rates, *, width: int, decisions: int = 6) -> RenderableType:
    """The whole picture, ``width`` columns wide."""
    color = {b.name: COLORS[i % len(COLORS)] for i, b in enumerate(sorted(shot.brokers, key=lambda b: b.name))}
    parts: list[RenderableType] = []
    busiest = sorted(shot.topics, key=lambda t: -sum(rates.of(s.name)[1] for s in t.segments))[:MAX_TOPICS]
    for topic in (t for t in shot.topics if t in busiest):
        many = len(topic.segments) > width // MIN_CELLS
        ring = dense_keyspace(topic, rates, width) if many else keyspace(topic, color, width)
        parts += [_topic_line(topic, rates), *ring, Text()]
    if len(shot.topics) > MAX_TOPICS:
        parts += [_more(len(shot.topics) - MAX_TOPICS, "less busy topic"), Text()]
    if not shot.topics:
        parts += [Text("no topics yet: smq apply -f FILE", style="dim"), Text()]
    parts += [_segments(shot, rates, color), Text(), _brokers(shot, color)]
    if shot.decisions:
        parts += [Text(), _decisions(shot.decisions[-decisions:])]
    return Group(*parts)


def keyspace(topic: TopicInfo, color: dict[str, str], width: int) -> list[Text]:
    """Two lines: the ring with each segment in its primary's colour, and below it the bounds of the segments."""
    ring, bounds = Text(), [" "] * (width + 6)
    for segment in sorted((s for s in topic.segments if s.phase != "pending"), key=lambda s: s.start):
        left, right = (edge * width // topic.partitions for edge in (segment.start, segment.stop))
        cells = max(1, right - left)
        primary = segment.brokers[0] if segment.brokers else "?"
        label = primary if segment.phase == "open" else f"{primary} {segment.phase}"
        text = label[: cells - 2].center(cells - 1) if cells > 3 else " " * (cells - 1)
        paint = f"black on {color.get(primary, 'white')}"
        ring.append(text, style=paint if segment.phase == "open" else f"{paint} dim")
        ring.append(" ")
        _mark(bounds, left, str(segment.start), width - len(str(topic.partitions)))
    end = str(topic.partitions)
    bounds[width - len(end) : width] = end
    return [ring, Text("".join(bounds).rstrip(), style="dim")]


def dense_keyspace(topic: TopicInfo, rates: Rates, width: int) -> list[Text]:
    """The same for more segments than can be told apart: how much is written where, as bars; partitions below."""
    load = [0.0] * width
    for segment in topic.segments:
        messages, _ = rates.of(segment.name)
        left = segment.start * width // topic.partitions
        right = max(left + 1, segment.stop * width // topic.partitions)
        for column in range(left, min(right, width)):
            load[column] += messages / (right - left)
    most = max(load) or 1.0
    bars = "".join(BARS[min(len(BARS) - 1, int(value / most * len(BARS)))] for value in load)
    bounds = [" "] * (width + 6)
    end = str(topic.partitions)
    for column in range(0, width, 10):
        _mark(bounds, column, str(column * topic.partitions // width), width - len(end))
    bounds[width - len(end) : width] = end
    return [Text(bars, style="cyan"), Text("".join(bounds).rstrip(), style="dim")]


def _mark(bounds: list[str], at: int, mark: str, before: int) -> None:
    """Writes the number there if there is room for it, and for the last one."""
    if at + len(mark) < before and "".join(bounds[max(0, at - 1) : at + len(mark) + 1]).strip() == "":
        bounds[at : at + len(mark)] = mark


def _more(count: int, what: str) -> Text:
    return Text(f"and {words.plural(count, what)}", style="dim")


def _topic_line(topic: TopicInfo, rates: Rates) -> Text:
    both = [rates.of(s.name) for s in topic.segments]
    return Text.assemble(
        (words.topic(topic.name), "bold"),
        f"   {words.plural(len(topic.segments), 'segment')}, {topic.sealed_segments} sealed",
        f"   {words.rate(sum(m for m, _ in both), sum(b for _, b in both))}",
        "   ready ",
        yes(topic.ready),
        *(
            (f"   {c.type}", "bold yellow")
            for c in topic.conditions
            if c.status and c.type not in ("Ready", "Balanced")
        ),
    )


def _segments(shot: Snapshot, rates: Rates, color: dict[str, str]) -> Table:
    loads = {s.segment: s for b in shot.brokers for s in b.segments if s.primary}
    rows: list[tuple[Cell, ...]] = []
    living: list[SegmentInfo] = [s for t in shot.topics for s in t.segments]
    shown = living
    if len(living) > MAX_SEGMENTS:
        shown = sorted(living, key=lambda s: (s.phase == "open", *(-rate for rate in rates.of(s.name))))[:MAX_SEGMENTS]
    for s in shown:
        load = loads.get(s.name)
        rows.append(
            (
                s.name,
                phase(s.phase),
                _replicas(s, color),
                f"{load.watermark:,}" if load else "–",
                words.size(load.tail_bytes) if load else "–",
                words.rate(*rates.of(s.name)),
                s.opened_because,
            )
        )
    if len(living) > MAX_SEGMENTS:
        rows.append((_more(len(living) - MAX_SEGMENTS, "less busy segment"), *[""] * 6))
    headings = ["SEGMENT", "PHASE", "PRIMARY, FOLLOWERS", "MESSAGES", "TAIL", "RATE", "OPENED"]
    return table(headings, rows, right=["MESSAGES", "TAIL"])


def _brokers(shot: Snapshot, color: dict[str, str]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    there = sorted((b for b in shot.brokers if b.state != "gone"), key=lambda b: b.name)
    shown = there
    if len(there) > MAX_BROKERS:
        shown = sorted(there, key=lambda b: (b.state == "alive", -b.tail_bytes))[:MAX_BROKERS]
    for b in shown:
        open_ = [s for s in b.segments if s.state != "sealed"]
        primaries = sum(s.primary for s in open_)
        rows.append(
            (
                Text(b.name, style=color[b.name]),
                state(b.state),
                f"{primaries} + {len(open_) - primaries}",
                _bar(b.tail_bytes, b.memory_limit),
                b.incarnation[:8],
                b.address,
            )
        )
    if len(there) > MAX_BROKERS:
        rows.append((_more(len(there) - MAX_BROKERS, "other broker"), *[""] * 5))
    return table(["BROKER", "STATE", "PRIMARY + FOLLOWER", "MEMORY", "INCARNATION", "ADDRESS"], rows)


def _decisions(decisions: Sequence[DecisionInfo]) -> Table:
    rows = [
        (words.clock(d.at), words.topic(d.topic), Text(d.action, style="bold"), _few(d.segments), d.reason)
        for d in decisions
    ]
    return table(["TIME", "TOPIC", "DECISION", "SEGMENTS", "REASON"], rows)


def _few(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 2 else f"{names[0]} and {len(names) - 1} more"


def _replicas(segment: SegmentInfo, color: dict[str, str]) -> Text:
    return Text(", ").join(Text(name, style=color.get(name, "")) for name in segment.brokers)


def _bar(used: int, limit: int, width: int = 12) -> Text:
    share = min(1.0, used / limit) if limit else 0.0
    filled = round(share * width)
    style = "green" if share < 0.6 else "yellow" if share < 0.85 else "red"
    return Text.assemble(("━" * filled, style), ("━" * (width - filled), "dim"), f" {words.size(used)}")
