"""A small SVG writer. Styles are classes, and rectangles of one colour share a path."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

STYLE = """
text { font: 12px system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: #334 }
.title { font-size: 15px; font-weight: 600 } .small { font-size: 10.5px; fill: #667 } .end { text-anchor: end }
.middle { text-anchor: middle } .grid { stroke: #dde; stroke-width: 1 } .frame { fill: none; stroke: #99a }
.line { fill: none; stroke-width: 1.6; stroke-linejoin: round }
"""


class Svg:
    """Collects elements; ``text()`` is the whole file. Units are pixels, y goes down."""

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = width, height
        self._parts: list[str] = []

    def rect(self, x: float, y: float, w: float, h: float, fill: str, extra: str = "") -> None:
        self._parts.append(f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(w)}" height="{_n(h)}" fill="{fill}" {extra}/>')

    def frame(self, x: float, y: float, w: float, h: float) -> None:
        self._parts.append(f'<rect class="frame" x="{_n(x)}" y="{_n(y)}" width="{_n(w)}" height="{_n(h)}"/>')

    def boxes(self, boxes: Iterable[tuple[float, float, float, float]], fill: str) -> None:
        """Many rectangles (x, y, width, height) of one colour."""
        path = "".join(f"M{_n(x)} {_n(y)}h{_n(w)}v{_n(h)}h{_n(-w)}z" for x, y, w, h in boxes)
        if path:
            self._parts.append(f'<path d="{path}" fill="{fill}"/>')

    def strokes(self, lines: Iterable[tuple[float, float, float, float]], stroke: str, width: float) -> None:
        """Many straight lines (x, y, to x, to y) of one colour."""
        path = "".join(f"M{_n(a)} {_n(b)}L{_n(c)} {_n(d)}" for a, b, c, d in lines)
        if path:
            self._parts.append(f'<path d="{path}" stroke="{stroke}" stroke-width="{_n(width)}" fill="none"/>')

    def marks(self, points: Iterable[tuple[float, float]], size: float, fill: str, up: bool) -> None:
        """Small triangles that point up or down, at their tips."""
        s = -size if not up else size
        path = "".join(f"M{_n(x)} {_n(y)}l{_n(-size / 1.6)} {_n(s)}h{_n(size * 1.25)}z" for x, y in points)
        if path:
            self._parts.append(f'<path d="{path}" fill="{fill}"/>')

    def line(self, points: Sequence[tuple[float, float]], stroke: str, extra: str = "") -> None:
        at = " ".join(f"{_n(x)},{_n(y)}" for x, y in points)
        self._parts.append(f'<polyline class="line" points="{at}" stroke="{stroke}" {extra}/>')

    def grid(self, x1: float, y1: float, x2: float, y2: float) -> None:
        self._parts.append(f'<line class="grid" x1="{_n(x1)}" y1="{_n(y1)}" x2="{_n(x2)}" y2="{_n(y2)}"/>')

    def write(self, x: float, y: float, text: str, classes: str = "", extra: str = "") -> None:
        self._parts.append(f'<text class="{classes}" x="{_n(x)}" y="{_n(y)}" {extra}>{escape(text)}</text>')

    def text(self) -> str:
        size = f'viewBox="0 0 {_n(self.width)} {_n(self.height)}" width="{_n(self.width)}" height="{_n(self.height)}"'
        body = "\n".join(self._parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">\n<style>{STYLE}</style>\n'
            f'<rect width="100%" height="100%" fill="#fff"/>\n{body}\n</svg>\n'
        )


def _n(value: float) -> str:
    """A number, as short as a tenth of a pixel needs."""
    return f"{value:.1f}".rstrip("0").rstrip(".") if value % 1 else str(int(value))
