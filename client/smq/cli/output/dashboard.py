"""Renders the screen of `smq top` and of the demo: keyspace, segments, brokers and the leader's last decisions.

These functions are pure: they take snapshots of the cluster and return objects that rich can draw.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from smq.cli.broker_states import present
from smq.cli.filer_outage import filer_notice
from smq.cli.output import formatting
from smq.cli.output.rendering import Cell, phase, state, table, yes
from smq_core.model.units import format_size

if TYPE_CHECKING:
    from smq import Admin, BrokerInfo, DecisionInfo, ProblemInfo, SegmentInfo, TopicInfo

COLORS = ("cyan", "magenta", "yellow", "green", "blue", "red", "bright_cyan", "bright_magenta", "bright_yellow")
RATE_WINDOW_SECONDS = 4.0
MAX_SEGMENTS = 16
MAX_BROKERS = 12
MAX_TOPICS = 6
# With fewer columns than this per segment on average, the keyspace shows bars of load in place of broker names.
MIN_COLUMNS_PER_SEGMENT = 4
BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSnapshot:
    """The state that the leader reported; ``at`` is in seconds of a monotonic clock."""

    at: float
    topics: Sequence[TopicInfo]
    brokers: Sequence[BrokerInfo]
    decisions: Sequence[DecisionInfo]
    problems: Sequence[ProblemInfo] = ()


def take_snapshot(admin: Admin, at: float) -> ClusterSnapshot:
    """Reads the present state from the leader. Raises Unavailable."""
    return ClusterSnapshot(
        at=at, topics=admin.topics(), brokers=admin.brokers(), decisions=admin.decisions(), problems=admin.problems()
    )


@dataclass(slots=True)
class SegmentRates:
    """Messages and bytes per second of each segment, from its primary's counters over the last seconds."""

    _samples: dict[str, deque[tuple[float, int, int]]] = field(default_factory=dict)

    def update(self, snapshot: ClusterSnapshot) -> None:
        counts = {s.segment: (s.messages, s.bytes) for b in snapshot.brokers for s in b.segments if s.primary}
        self._samples = {name: samples for name, samples in self._samples.items() if name in counts}
        for name, (messages, nbytes) in counts.items():
            samples = self._samples.setdefault(name, deque())
            samples.append((snapshot.at, messages, nbytes))
            while len(samples) > 2 and snapshot.at - samples[0][0] > RATE_WINDOW_SECONDS:
                samples.popleft()

    def of(self, segment: str) -> tuple[float, float]:
        samples = self._samples.get(segment)
        if not samples or samples[-1][0] <= samples[0][0]:
            return 0.0, 0.0
        seconds = samples[-1][0] - samples[0][0]
        return (samples[-1][1] - samples[0][1]) / seconds, (samples[-1][2] - samples[0][2]) / seconds

    def total(self) -> tuple[float, float]:
        both = [self.of(name) for name in self._samples]
        return sum(m for m, _ in both), sum(b for _, b in both)


def render(snapshot: ClusterSnapshot, rates: SegmentRates, *, width: int, decisions: int = 6) -> RenderableType:
    """Renders the whole screen, ``width`` columns wide."""
    color = {b.name: COLORS[i % len(COLORS)] for i, b in enumerate(sorted(snapshot.brokers, key=lambda b: b.name))}
    notice = filer_notice(snapshot.problems)
    parts: list[RenderableType] = [Text(f"{notice}\n", style="bold red")] if notice else []
    busiest = sorted(snapshot.topics, key=lambda t: -sum(rates.of(s.name)[1] for s in t.segments))[:MAX_TOPICS]
    for topic in (t for t in snapshot.topics if t in busiest):
        is_dense = len(topic.segments) > width // MIN_COLUMNS_PER_SEGMENT
        ring = render_dense_keyspace(topic, rates, width) if is_dense else render_keyspace(topic, color, width)
        parts += [_topic_line(topic, rates), *ring, Text()]
    if len(snapshot.topics) > MAX_TOPICS:
        parts += [_hidden_count(len(snapshot.topics) - MAX_TOPICS, "less busy topic"), Text()]
    if not snapshot.topics:
        parts += [Text("no topics yet: smq apply -f FILE", style="dim"), Text()]
    parts += [_segments(snapshot, rates, color), Text(), _brokers(snapshot, color)]
    if snapshot.decisions:
        parts += [Text(), _decisions(snapshot.decisions[-decisions:])]
    return Group(*parts)


def render_keyspace(topic: TopicInfo, color: dict[str, str], width: int) -> list[Text]:
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
        _write_mark(bounds, left, str(segment.start), width - len(str(topic.partitions)))
    end = str(topic.partitions)
    bounds[width - len(end) : width] = end
    return [ring, Text("".join(bounds).rstrip(), style="dim")]


def render_dense_keyspace(topic: TopicInfo, rates: SegmentRates, width: int) -> list[Text]:
    """The keyspace of too many segments to show each: bars of the write load, and below them partition numbers."""
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
        _write_mark(bounds, column, str(column * topic.partitions // width), width - len(end))
    bounds[width - len(end) : width] = end
    return [Text(bars, style="cyan"), Text("".join(bounds).rstrip(), style="dim")]


def _write_mark(bounds: list[str], at: int, mark: str, before: int) -> None:
    """Writes the mark if there is space for it and for the last number."""
    if at + len(mark) < before and "".join(bounds[max(0, at - 1) : at + len(mark) + 1]).strip() == "":
        bounds[at : at + len(mark)] = mark


def _hidden_count(count: int, what: str) -> Text:
    return Text(f"and {formatting.plural(count, what)}", style="dim")


def _topic_line(topic: TopicInfo, rates: SegmentRates) -> Text:
    both = [rates.of(s.name) for s in topic.segments]
    return Text.assemble(
        (formatting.topic(topic.name), "bold"),
        f"   {formatting.plural(len(topic.segments), 'segment')}, {topic.sealed_segments} sealed",
        f"   {formatting.rate(sum(m for m, _ in both), sum(b for _, b in both))}",
        "   ready ",
        yes(topic.ready),
        *((f"   {issue}", "bold yellow") for issue in _issues(topic)),
    )


def _issues(topic: TopicInfo) -> Iterator[str]:
    """The conditions that need attention. ``Ready`` is shown in a separate place."""
    for condition in topic.conditions:
        if condition.type in ("Balanced", "FilerAvailable"):
            if condition.status == "False":
                yield condition.reason
        elif condition.type != "Ready" and condition.is_true:
            yield condition.type
        elif condition.type == "DataLoss" and condition.status == "Unknown":
            yield "DataLoss?"


def _segments(snapshot: ClusterSnapshot, rates: SegmentRates, color: dict[str, str]) -> Table:
    loads = {s.segment: s for b in snapshot.brokers for s in b.segments if s.primary}
    rows: list[tuple[Cell, ...]] = []
    living: list[SegmentInfo] = [s for t in snapshot.topics for s in t.segments]
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
                format_size(load.tail_bytes) if load else "–",
                formatting.rate(*rates.of(s.name)),
                s.opened_because,
            )
        )
    if len(living) > MAX_SEGMENTS:
        rows.append((_hidden_count(len(living) - MAX_SEGMENTS, "less busy segment"), *[""] * 6))
    headings = ["SEGMENT", "PHASE", "PRIMARY, FOLLOWERS", "MESSAGES", "TAIL", "RATE", "OPENED"]
    return table(headings, rows, right=["MESSAGES", "TAIL"])


def _brokers(snapshot: ClusterSnapshot, color: dict[str, str]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    processes = sorted(present(snapshot.brokers), key=lambda b: b.name)
    shown = processes
    if len(processes) > MAX_BROKERS:
        shown = sorted(processes, key=lambda b: (b.state == "alive", -b.tail_bytes))[:MAX_BROKERS]
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
    if len(processes) > MAX_BROKERS:
        rows.append((_hidden_count(len(processes) - MAX_BROKERS, "other broker"), *[""] * 5))
    return table(["BROKER", "STATE", "PRIMARY + FOLLOWER", "MEMORY", "INCARNATION", "ADDRESS"], rows)


def _decisions(decisions: Sequence[DecisionInfo]) -> Table:
    rows = [
        (
            formatting.clock(d.at),
            formatting.topic(d.topic),
            Text(d.action, style="bold"),
            _shorten_names(d.segments),
            d.reason,
        )
        for d in decisions
    ]
    return table(["TIME", "TOPIC", "DECISION", "SEGMENTS", "REASON"], rows)


def _shorten_names(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 2 else f"{names[0]} and {len(names) - 1} more"


def _replicas(segment: SegmentInfo, color: dict[str, str]) -> Text:
    return Text(", ").join(Text(name, style=color.get(name, "")) for name in segment.brokers)


def _bar(used: int, limit: int, width: int = 12) -> Text:
    share = min(1.0, used / limit) if limit else 0.0
    filled = round(share * width)
    style = "green" if share < 0.6 else "yellow" if share < 0.85 else "red"
    return Text.assemble(("━" * filled, style), ("━" * (width - filled), "dim"), f" {format_size(used)}")
