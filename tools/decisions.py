"""Make the index of the decisions from their heads: docs/decisions/index.md, as part of ``make reference``.

A decision begins with its title, a table of its status, its date and what it replaces, and one sentence that says what
was decided. Their numbers have no holes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

STATUSES = ("accepted", "proposed")
_NAME = re.compile(r"(\d{4})-[a-z0-9-]+\.md")
_HEAD = re.compile(
    r"# (?P<title>.+)\n\n"
    r"\| status \| date \| replaces \|\n\| --- \| --- \| --- \|\n"
    r"\| (?P<status>\w+) \| (?P<date>\d{4}-\d\d-\d\d) \| (?P<replaces>[^|\n]+) \|\n\n"
    r"(?P<sentence>[^\n|#][^|]*?\.)\n(?:\n|\Z)"
)


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision as its head has it. ``number`` is that of its file's name."""

    file: str
    number: int
    title: str
    status: str
    date: str
    replaces: str
    sentence: str


def read_decision(path: Path) -> Decision:
    """The head of one decision. Raises ValueError, which says what is wrong with it."""
    name, head = _NAME.fullmatch(path.name), _HEAD.match(path.read_text())
    if name is None:
        raise ValueError(f"{path.name}: a decision is named by four digits and words, such as 0001-some-words.md")
    if head is None:
        raise ValueError(f"{path.name}: it needs a title, the table of status, date and replaces, and one sentence")
    if head["status"] not in STATUSES:
        raise ValueError(f"{path.name}: the status {head['status']!r} is none of {', '.join(STATUSES)}")
    sentence = " ".join(head["sentence"].split())
    if re.search(r"[.!?] ", sentence):
        raise ValueError(f"{path.name}: one sentence says what was decided, not several: {sentence}")
    return Decision(path.name, int(name[1]), head["title"], head["status"], head["date"], head["replaces"], sentence)


def read_decisions(folder: Path) -> list[Decision]:
    """All decisions of the folder. Raises ValueError if their numbers are not 1, 2, 3, and so on."""
    decisions = [read_decision(path) for path in sorted(folder.glob("*.md")) if path.name != "index.md"]
    for expected, decision in enumerate(decisions, 1):
        if decision.number != expected:
            raise ValueError(f"{decision.file}: its number should be {expected:04d}, because numbers have no holes")
    return decisions


def index_rows(decisions: Sequence[Decision]) -> list[list[str]]:
    """A row of the index for each decision."""
    return [
        [f"[{it.number:04d}]({it.file})", it.title, it.sentence, it.replaces, it.status, it.date] for it in decisions
    ]
