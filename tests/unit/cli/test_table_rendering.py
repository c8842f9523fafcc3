"""Tables that are written to a pipe."""

from __future__ import annotations

import pytest
from rich.text import Text

from smq.cli.rendering import print_table


def test_columns_stand_below_their_headings(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(
        ["NAME", "COUNT", "WHY"], [("a", "1", Text("x", style="red")), ("longer", "1,000", "[y]")], right=["COUNT"]
    )

    assert capsys.readouterr().out.splitlines() == [
        "NAME     COUNT   WHY",
        "a            1   x",
        "longer   1,000   [y]",
    ]


def test_wide_characters_count_as_wide(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["A", "B"], [("日本", "1"), ("–", "2")])

    assert capsys.readouterr().out.splitlines() == ["A      B", "日本   1", "–      2"]


def test_a_list_without_rows_has_its_headings(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["A", "B"], [])

    assert capsys.readouterr().out == "A   B\n"
