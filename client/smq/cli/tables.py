"""Lists for the terminal: aligned columns without lines, as other command lines show them; or JSON for programs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

Cell = str | Text

GAP = "   "

_VERY_WIDE = Console(width=10_000)


class Output(StrEnum):
    """How a list is printed."""

    TABLE = "table"
    JSON = "json"


def table(headings: Sequence[str], rows: Iterable[Sequence[Cell]], right: Sequence[str] = ()) -> Table:
    """Columns under headings, as wide as they need to be; those named in ``right`` hold numbers."""
    made = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    for heading in headings:
        made.add_column(heading, justify="right" if heading in right else "left", no_wrap=True)
    for row in rows:
        # Text, because rich takes what stands in brackets in a plain string for its markup.
        made.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
    made.width = _VERY_WIDE.measure(made).maximum
    return made


def print_table(headings: Sequence[str], rows: Sequence[Sequence[Cell]], *, right: Sequence[str] = ()) -> None:
    """Nothing is cut off: a long line is wrapped by the terminal, and goes whole into a pipe.

    Line by line, because thousands of segments take rich's own tables many seconds.
    """
    console = Console(highlight=False)
    cells = [headings, *rows]
    widths = [max(_width(cell) for cell in column) for column in zip(*cells, strict=True)]
    for number, row in enumerate(cells):
        rooms = [" " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True)]
        parts = [
            (room, cell) if heading in right else (cell, room)
            for heading, cell, room in zip(headings, row, rooms, strict=True)
        ]
        if console.is_terminal:
            line = Text.assemble(*(Text.assemble(*part, GAP) for part in parts), style="bold" if number == 0 else "")
            line.rstrip()
            console.print(line, soft_wrap=True)
        else:
            print("".join(f"{a}{b}{GAP}" for a, b in parts).rstrip())


def _width(cell: Cell) -> int:
    return cell.cell_len if isinstance(cell, Text) else cell_len(cell)


def print_json(value: Any) -> None:
    """Dataclasses, lists and mappings of them, as indented JSON."""
    print(json.dumps(value, default=_plain, indent=2, ensure_ascii=False))


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    return str(value)


_PHASES = {"open": "green", "pending": "cyan", "sealing": "yellow", "sealed": "dim"}
_STATES = {"alive": "green", "suspect": "yellow", "draining": "yellow", "gone": "red"}


def phase(name: str) -> Text:
    return Text(name, style=_PHASES.get(name, ""))


def state(name: str) -> Text:
    return Text(name, style=_STATES.get(name, ""))


def yes(value: bool) -> Text:
    return Text("yes", style="green") if value else Text("no", style="bold red")
