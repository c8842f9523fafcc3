"""Prints lists: as aligned columns without lines for the terminal, or as JSON or YAML for programs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text
from typer.core import TyperCommand

from smq_core.model.units import format_time

if TYPE_CHECKING:
    from rich.table import Table

Cell = str | Text

COLUMN_GAP = "   "

_VERY_WIDE = Console(width=10_000)


class Output(StrEnum):
    """How a list is printed. A wide table has more columns."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"


OutputOption = Annotated[Output, typer.Option("-o", "--output", help="How to print it; --json is short for -o json.")]


class ListCommand(TyperCommand):
    """A command with ``OutputOption``, for which ``--json`` stands for ``--output json``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        options = args[: args.index("--")] if "--" in args else args
        given = ["--output=json" if arg == "--json" else arg for arg in options]
        return super().parse_args(ctx, given + args[len(options) :])


def table(headings: Sequence[str], rows: Iterable[Sequence[Cell]], right: Sequence[str] = ()) -> Table:
    """Returns a table as wide as its cells; the columns named in ``right`` are aligned to the right."""
    from rich.table import Table  # imported late: most commands print their rows themselves

    made = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    for heading in headings:
        made.add_column(heading, justify="right" if heading in right else "left", no_wrap=True)
    for row in rows:
        # Text, because rich reads brackets in plain strings as markup.
        made.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
    made.width = _VERY_WIDE.measure(made).maximum
    return made


def print_list(
    output: Output,
    value: Any,
    headings: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    *,
    right: Sequence[str] = (),
    wide: Sequence[str] = (),
) -> None:
    """Prints the rows, without the columns named in ``wide`` unless they are wanted, or else ``value``."""
    if print_value(output, value):
        return
    shown = [number for number, heading in enumerate(headings) if output is Output.WIDE or heading not in wide]
    print_table([headings[n] for n in shown], [[row[n] for n in shown] for row in rows], right=right)


def print_value(output: Output, value: Any) -> bool:
    """Prints dataclasses, or lists and mappings of them, as JSON or YAML. False: a table is wanted."""
    if output is Output.JSON:
        print_json(value)
    elif output is Output.YAML:
        import yaml  # imported late, because few commands need it

        plain = json.loads(json.dumps(value, default=_plain))
        print(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True), end="")
    return output in (Output.JSON, Output.YAML)


def print_table(headings: Sequence[str], rows: Sequence[Sequence[Cell]], *, right: Sequence[str] = ()) -> None:
    """Prints a table without cutting anything off: the terminal wraps long lines, and a pipe gets them whole.

    It prints line by line, because rich's own tables take many seconds for thousands of segments.
    """
    console = Console(highlight=False)
    cells = [headings, *rows]
    widths = [max(_width(cell) for cell in column) for column in zip(*cells, strict=True)]
    for number, row in enumerate(cells):
        paddings = [" " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True)]
        parts = [
            (padding, cell) if heading in right else (cell, padding)
            for heading, cell, padding in zip(headings, row, paddings, strict=True)
        ]
        if console.is_terminal:
            line = Text.assemble(
                *(Text.assemble(*part, COLUMN_GAP) for part in parts), style="bold" if number == 0 else ""
            )
            line.rstrip()
            console.print(line, soft_wrap=True)
        else:
            print("".join(f"{a}{b}{COLUMN_GAP}" for a, b in parts).rstrip())


def _width(cell: Cell) -> int:
    return cell.cell_len if isinstance(cell, Text) else cell_len(cell)


def print_json(value: Any) -> None:
    """Prints dataclasses, or lists and mappings of them, as indented JSON."""
    print(json.dumps(value, default=_plain, indent=2, ensure_ascii=False))


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    return format_time(value) if isinstance(value, datetime) else str(value)


_PHASES = {"open": "green", "pending": "cyan", "sealing": "yellow", "sealed": "dim"}
_STATES = {"alive": "green", "suspect": "yellow", "draining": "yellow", "gone": "red"}


def phase(name: str) -> Text:
    return Text(name, style=_PHASES.get(name, ""))


def state(name: str) -> Text:
    return Text(name, style=_STATES.get(name, ""))


def yes(value: bool) -> Text:
    return Text("yes", style="green") if value else Text("no", style="bold red")
