"""The index of decisions is made from their heads, and a head that lacks something is an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.decisions import index_rows, read_decisions
from tools.site_links import DOCS

TITLE = "# Chunks have names\n\n"
TABLE = "| status | date | replaces |\n| --- | --- | --- |\n| accepted | 2026-11-21 | – |\n\n"
SENTENCE = "A chunk is named by its\nfirst offset.\n\n"


def write(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"{text}The reasons. And more.\n")


def test_the_decisions_of_the_project_have_heads_and_numbers_without_holes() -> None:
    decisions = read_decisions(DOCS / "decisions")
    assert len(decisions) > 25
    assert {it.name for it in (DOCS / "decisions").glob("0*.md")} == {it.file for it in decisions}


def test_a_row_has_what_the_head_says(tmp_path: Path) -> None:
    write(tmp_path, "0001-names.md", TITLE + TABLE + SENTENCE)
    assert index_rows(read_decisions(tmp_path)) == [
        [
            "[0001](0001-names.md)",
            "Chunks have names",
            "A chunk is named by its first offset.",
            "–",
            "accepted",
            "2026-11-21",
        ]
    ]


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("0002-names.md", TITLE + TABLE + SENTENCE, "its number should be 0001"),
        ("names.md", TITLE + TABLE + SENTENCE, "a decision is named by four digits"),
        ("0001-names.md", TITLE + SENTENCE, "the table of status, date and replaces"),
        (
            "0001-names.md",
            TITLE + TABLE.replace("accepted", "done") + SENTENCE,
            "the status 'done' is none of",
        ),
        ("0001-names.md", TITLE + TABLE.replace("2026-11-21", "November") + SENTENCE, "the table of status, date"),
        ("0001-names.md", TITLE + TABLE + "It is so. It is not.\n\n", "one sentence says what was decided"),
        ("0001-names.md", TITLE + TABLE + "## Why\n\n", "and one sentence"),
    ],
)
def test_a_wrong_head_is_an_error(tmp_path: Path, name: str, text: str, problem: str) -> None:
    write(tmp_path, name, text)
    with pytest.raises(ValueError, match=problem):
        read_decisions(tmp_path)


def test_a_number_that_is_used_twice_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, "0001-names.md", TITLE + TABLE + SENTENCE)
    write(tmp_path, "0001-other-names.md", TITLE + TABLE + SENTENCE)
    with pytest.raises(ValueError, match=r"0001-other-names.md: its number should be 0002"):
        read_decisions(tmp_path)
