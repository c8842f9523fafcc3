"""Pictures of runs: the ring over time, with segments coloured by pressure, and the decisions with their effects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.elastic.record import Note, Record, Span
from benchmarks.elastic.svg import Svg

LEVELS = (0.05, 0.15, 0.3, 0.45, 0.6, 0.75, 0.9, 1.0, 1.25, 1.75, 2.5, 4.0)
# Up to each level; the last is for all above. Below the target blue and green, above it yellow to red.
COLOURS = (
    "#f3f6fa",
    "#e3edf6",
    "#cfe3f1",
    "#b3d6e8",
    "#92c7dc",
    "#74b8c4",
    "#67ab93",
    "#8fb85f",
    "#f2cf4a",
    "#f0a033",
    "#e4692c",
    "#c4312f",
    "#7d1530",
)
SPLIT, MERGE, MOVE, FAULT = "#1b1f2a", "#7b3fa0", "#8a93a6", "#c4312f"
OFFERED, ACCEPTED, SEGMENTS, BROKERS = "#9aa5b8", "#2f7f6f", "#1f5fa8", "#c9702b"
HEADROOM = 1.35
# Pixels from one line of text to the next.
LINE = 13
EDGE = "#c6d0de"
# Pixels in time over which a pressure is averaged.
COLUMN = 2.0


@dataclass(frozen=True)
class Area:
    """Where on the picture which seconds are drawn."""

    x: float
    y: float
    width: float
    height: float
    begin: float
    end: float

    def at(self, second: float) -> float:
        return self.x + (min(max(second, self.begin), self.end) - self.begin) / (self.end - self.begin) * self.width

    def below(self, gap: float, height: float) -> Area:
        return Area(self.x, self.y + self.height + gap, self.width, height, self.begin, self.end)


def draw(
    record: Record, title: str, subtitle: str, *, faults: Sequence[Note] = (), decided: Sequence[Note] = ()
) -> str:
    """One run: the ring, then load, then segments and brokers. Returns the SVG.

    ``faults`` are marked above the ring with their numbers; they and what was ``decided`` are listed below.
    """
    lines = max(len(faults), len(decided))
    svg = Svg(940, 590 + (34 + LINE * lines if lines else 0))
    ring = Area(64, 104 if lines else 92, 852, 278 if lines else 290, 0, record.samples[-1].second)
    svg.write(64, 24, title, "title")
    svg.write(64, 41, subtitle, "small")
    _legend(svg, 142, 54)
    _ring(svg, record, ring)
    _axis_label(svg, ring, "key space")
    load = ring.below(12, 70)
    most = max(max(s.offered, s.accepted) for s in record.samples) / record.target * HEADROOM
    _strip(svg, load, record, most, "targets")
    _curve(svg, load, record, most, OFFERED, lambda i: record.samples[i].offered / record.target)
    _curve(svg, load, record, most, ACCEPTED, lambda i: record.samples[i].accepted / record.target)
    _key(svg, load, [("offered", OFFERED), ("taken in", ACCEPTED)])
    counts = load.below(12, 70)
    top = max(max(s.segments, s.brokers) for s in record.samples) * HEADROOM
    _strip(svg, counts, record, top, "count")
    _curve(svg, counts, record, top, SEGMENTS, lambda i: record.samples[i].segments)
    _curve(svg, counts, record, top, BROKERS, lambda i: record.samples[i].brokers)
    _key(svg, counts, [("segments", SEGMENTS), ("brokers", BROKERS)])
    _time(svg, counts)
    if lines:
        _fault_marks(svg, ring, faults)
        _list(svg, 64, 612, "what happened around it", [f"{i}  {_said(n, 52)}" for i, n in enumerate(faults, 1)])
        _list(svg, 400, 612, "what was decided, and why", [_said(note, 92) for note in decided])
    return svg.text()


def side_by_side(records: Sequence[Record], title: str, subtitle: str, begin: int, end: int) -> str:
    """Several systems under the same load, between these seconds. Returns the SVG."""
    each, gap = 300, 24
    svg = Svg(64 + len(records) * (each + gap), 466)
    svg.write(56, 24, title, "title")
    svg.write(56, 41, subtitle, "small")
    _legend(svg, 134, 54)
    top = max(s.segments for r in records for s in r.samples) * 1.1
    for i, record in enumerate(records):
        ring = Area(56 + i * (each + gap), 112, each, 250, begin, end)
        svg.write(ring.x, 104, record.name)
        _ring(svg, record, ring)
        counts = ring.below(10, 64)
        _strip(svg, counts, record, top, "segments" if i == 0 else "", numbers=i == 0)
        _curve(svg, counts, record, top, SEGMENTS, lambda n, r=record: r.samples[n].segments)  # type: ignore[misc]
        _time(svg, counts)
        if i == 0:
            _axis_label(svg, ring, "key space")
    return svg.text()


def _ring(svg: Svg, record: Record, area: Area) -> None:
    boxes: dict[int, list[tuple[float, float, float, float]]] = {}
    edges: list[tuple[float, float, float, float]] = []
    scale = area.height / record.partitions
    step = max(1.0, COLUMN * (area.end - area.begin) / area.width)
    for span in record.spans.values():
        begin = span.opened - span.every
        last = min(begin + len(span.pressures) * span.every, area.end)
        y, height = area.y + span.range.start * scale, len(span.range) * scale
        for start, stop, level in _runs(begin, last, max(step, span.every), span, area.begin):
            x = area.at(start)
            boxes.setdefault(level, []).append((x, y, area.at(stop) - x, height))
        if last > area.begin and span.range.start:
            edges.append((area.at(begin), y, area.at(last), y))
    for level, there in sorted(boxes.items()):
        svg.boxes(there, COLOURS[level])
    svg.strokes(edges, EDGE, 0.7)
    for actions, colour, width in (
        (("rebalance", "drain", "failover", "roll", "manual"), MOVE, 0.8),
        (("merge",), MERGE, 1.4),
        (("split",), SPLIT, 1.4),
    ):
        marks = []
        for event in record.events:
            if event.action in actions and area.begin <= event.second <= area.end:
                x = area.at(event.second)
                marks.append((x, area.y + event.range.start * scale, x, area.y + event.range.stop * scale))
        svg.strokes(marks, colour, width)
    svg.frame(area.x, area.y, area.width, area.height)


def _runs(opened: float, closed: float, step: float, span: Span, begin: float) -> list[tuple[float, float, int]]:
    """Stretches of one colour: from, to, level."""
    runs: list[tuple[float, float, int]] = []
    at = max(opened, begin)
    while at < closed:
        to = min(closed, at + step)
        first = max(0, int((at - opened) / span.every))
        part = span.pressures[first : max(first + 1, int((to - opened) / span.every))]
        level = _level(sum(part) / len(part))
        if runs and runs[-1][2] == level:
            runs[-1] = (runs[-1][0], to, level)
        else:
            runs.append((at, to, level))
        at = to
    return runs


def _level(pressure: float) -> int:
    return next((i for i, upto in enumerate(LEVELS) if pressure <= upto), len(LEVELS))


def _legend(svg: Svg, x: float, y: float) -> None:
    svg.write(x - 8, y + 10, "load / target", "small end")
    width = 13
    for i, colour in enumerate(COLOURS):
        svg.rect(x + i * width, y, width, 12, colour)
    svg.frame(x, y, width * len(COLOURS), 12)
    for level in (0.3, 0.6, 1.0, 2.5):
        svg.write(x + (LEVELS.index(level) + 1) * width, y + 24, f"{level:g}", "small middle")
    at = x + width * len(COLOURS) + 16
    for name, colour in (("split", SPLIT), ("merge", MERGE), ("move, drain, roll", MOVE)):
        svg.strokes([(at, y, at, y + 12)], colour, 2)
        svg.write(at + 5, y + 10, name, "small")
        at += 16 + 5.6 * len(name)


def _strip(svg: Svg, area: Area, record: Record, top: float, label: str, *, numbers: bool = True) -> None:
    for value in _ticks(top):
        y = area.y + area.height * (1 - value / top)
        svg.grid(area.x, y, area.x + area.width, y)
        if numbers:
            svg.write(area.x - 6, y + 4, f"{value:g}", "small end")
    svg.frame(area.x, area.y, area.width, area.height)
    if label:
        _axis_label(svg, area, label)


def _curve(svg: Svg, area: Area, record: Record, top: float, colour: str, value: Callable[[int], float]) -> None:
    """One value of each sample; per pixel the largest."""
    best: dict[int, float] = {}
    for i, sample in enumerate(record.samples):
        if area.begin <= sample.second <= area.end:
            x = int(area.at(sample.second))
            best[x] = max(best.get(x, 0.0), value(i))
    points = [(x, area.y + area.height * (1 - v / top)) for x, v in best.items()]
    thin = [
        p
        for i, p in enumerate(points)
        if not (0 < i < len(points) - 1 and points[i - 1][1] == p[1] == points[i + 1][1])
    ]
    svg.line(thin, colour)


def _key(svg: Svg, area: Area, entries: Sequence[tuple[str, str]]) -> None:
    x = area.x + area.width - 8
    for name, colour in reversed(entries):
        svg.write(x, area.y + 14, name, "small end", f'style="fill:{colour};font-weight:600"')
        x -= 12 + 6.2 * len(name)


def _time(svg: Svg, area: Area) -> None:
    span = area.end - area.begin
    step = next((s for s in (5, 10, 20, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200) if span / s <= 8), 14_400)
    at = 0
    while at <= span:
        x = area.at(area.begin + at)
        svg.grid(x, area.y + area.height, x, area.y + area.height + 4)
        where = "end" if at == span else "middle" if at else ""
        svg.write(
            x,
            area.y + area.height + 16,
            "0" if not at else f"{at} s" if step < 60 else f"{at // 60} min",
            f"small {where}",
        )
        at += step


def _fault_marks(svg: Svg, area: Area, faults: Sequence[Note]) -> None:
    """A triangle above the ring for each, with its number where there is room."""
    svg.marks([(area.at(note.second), area.y - 1) for note in faults], 5, FAULT, up=False)
    free = 0.0
    for number, note in enumerate(faults, 1):
        x = area.at(note.second)
        if x >= free:
            svg.write(x, area.y - 8, str(number), "small middle", f'style="fill:{FAULT}"')
            free = x + 14


def _list(svg: Svg, x: float, y: float, head: str, lines: Sequence[str]) -> None:
    svg.write(x, y, head)
    for i, line in enumerate(lines):
        svg.write(x, y + 16 + LINE * i, line, "small")


def _said(note: Note, most: int) -> str:
    words = f"{note.second:.1f} s  {note.words}"
    return words if len(words) <= most else words[: most - 1] + "…"


def _axis_label(svg: Svg, area: Area, text: str) -> None:
    x, y = area.x - 34, area.y + area.height / 2
    svg.write(x, y, text, "small middle", f'transform="rotate(-90 {x:.0f} {y:.0f})"')


def _ticks(top: float) -> list[float]:
    step = next(s for s in (0.25, 0.5, 1, 2, 4, 5, 10, 20, 25, 50, 100, 500, 1_000, 5_000) if top / s <= 4.5)
    return [step * i for i in range(int(top / step) + 1)]
