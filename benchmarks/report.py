"""Writes rows to a file of JSON lines, and prints them as tables."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.harness.child_process import ROOT
from benchmarks.harness.meter import NOISY
from benchmarks.model import OURS, Case, Figure, Measurement, typical

RESULTS = ROOT / "benchmarks" / "results"


class Results:
    """The rows of one run of the benchmarks."""

    def __init__(self) -> None:
        self.path = RESULTS / f"{time.strftime('%Y%m%d-%H%M%S')}.jsonl"
        self.rows: list[Measurement] = []

    def add(self, row: Measurement) -> None:
        self.rows.append(row)
        RESULTS.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps({"at": round(time.time(), 1), **asdict(row)}, default=str) + "\n")

    def of(self, case: str, who: str) -> list[Measurement]:
        return [r for r in self.rows if r.case == case and r.who == who]

    def misses(self, case: Case) -> list[str]:
        """The figures of ours that are off their target, in words."""
        return [f.label for f in case.figures if verdict(self, case, f) == "missed"]


def verdict(results: Results, case: Case, figure: Figure) -> str:
    """met, missed, or nothing when there is no target or nothing was measured."""
    mine = typical(results.of(case.name, OURS), figure.key)
    if mine is None:
        return ""
    answers = [figure.met(mine[0])]
    if figure.floor is not None:
        other = typical(results.of(case.name, figure.floor[0]), figure.key)
        answers.append(None if other is None else mine[0] >= figure.floor[1] * other[0])
    known = [a for a in answers if a is not None]
    return "" if not known else "met" if all(known) else "missed"


def machine() -> str:
    """What a reader must know of where this was measured."""
    gigabytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores, {gigabytes:.0f} GiB, {platform.machine()}, Python {platform.python_version()}"


def lines(results: Results, cases: Sequence[Case]) -> tuple[list[str], list[list[str]]]:
    """Heads and cells: one line a figure; peers have their value and, in brackets, ours divided by theirs."""
    peers = [p for p in dict.fromkeys(r.who for r in results.rows) if p != OURS]
    heads = ["case", "figure", "ours (least to greatest)", "target", "", *(f"{name} (ratio)" for name in peers)]
    found = []
    for case in cases:
        for number, figure in enumerate(case.figures):
            mine = typical(results.of(case.name, OURS), figure.key)
            if mine is None:
                continue
            cells = [case.name if not number else "", figure.label, _value(mine), _target(figure)]
            cells.append(verdict(results, case, figure))
            for name in peers:
                other = typical(results.of(case.name, name), figure.key)
                cells.append("" if other is None else f"{short(other[0])} ({_ratio(mine[0], other[0])})")
            found.append(cells)
    return heads, found


def show(results: Results, cases: Sequence[Case], console: Console) -> None:
    """A table for the terminal."""
    heads, found = lines(results, cases)
    table = Table(title=f"medians of {len(results.rows)} runs; {machine()}", title_justify="left")
    for head in heads:
        table.add_column(head)
    for cells in found:
        table.add_row(*({"met": "[green]met", "missed": "[red]missed"}.get(cell, cell) for cell in cells))
    console.print(table)
    console.print(f"~: other processes took more than {NOISY} cores in every run. All rows: {results.path}")


def markdown(results: Results, cases: Sequence[Case]) -> str:
    """The same for a document."""
    heads, found = lines(results, cases)
    rows = [heads, ["---"] * len(heads), *found]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def short(value: float) -> str:
    """Three digits and a unit prefix."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= 10 * size or (letter == "M" and abs(value) >= size):
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def _value(found: tuple[float, float, float, bool]) -> str:
    middle, least, greatest, noisy = found
    spread = f" ({short(least)} to {short(greatest)})" if greatest > least else ""
    return short(middle) + spread + (" ~" if noisy else "")


def _target(figure: Figure) -> str:
    if figure.target is None:
        return ""
    floor = f", {figure.floor[1]:.0%} of {figure.floor[0]}" if figure.floor else ""
    return ("≥ " if figure.higher else "≤ ") + short(figure.target) + floor


def _ratio(mine: float, other: float) -> str:
    return f"×{mine / other:.2g}" if other else "-"


def read(path: Path) -> list[Measurement]:
    """The rows of an earlier run."""
    rows = []
    for line in path.read_text().splitlines():
        fields = json.loads(line)
        fields.pop("at", None)
        rows.append(Measurement(**fields))
    return rows
