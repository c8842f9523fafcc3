"""Tables that are written to a pipe."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
import typer
import yaml
from rich.text import Text
from typer.testing import CliRunner

from smq.cli.app import app
from smq.cli.output.rendering import ListCommand, Output, OutputOption, print_list, print_table, print_value


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


@dataclass(frozen=True)
class Row:
    name: str
    counts: dict[str, int]


def printed(output: Output, capsys: pytest.CaptureFixture[str]) -> str:
    print_list(output, [Row("a", {"b": 1})], ["NAME", "COUNT", "MORE"], [("a", "1", "x")], wide=["MORE"])
    return capsys.readouterr().out


def test_a_wide_table_has_more_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(Output.TABLE, capsys) == "NAME   COUNT\na      1\n"
    assert printed(Output.WIDE, capsys) == "NAME   COUNT   MORE\na      1       x\n"


def test_a_list_is_printed_whole_as_json_and_yaml(capsys: pytest.CaptureFixture[str]) -> None:
    plain = [{"name": "a", "counts": {"b": 1}}]
    assert json.loads(printed(Output.JSON, capsys)) == plain
    assert yaml.safe_load(printed(Output.YAML, capsys)) == plain


@dataclass
class Timed:
    name: str
    opened_at: datetime
    sealed_at: datetime | None
    at: datetime
    appended_min: datetime | None
    format: int = 5


def test_every_time_in_json_and_yaml_has_one_form(capsys: pytest.CaptureFixture[str]) -> None:
    at = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    timed = Timed("a", at.replace(microsecond=1), None, at, datetime(2024, 1, 1, tzinfo=UTC))
    expected = {
        "name": "a",
        "opened_at": "2023-11-14T22:13:20.000001Z",
        "sealed_at": None,
        "at": "2023-11-14T22:13:20.000000Z",
        "appended_min": "2024-01-01T00:00:00.000000Z",
        "format": 5,
    }
    print_value(Output.JSON, {"x": [timed]})
    assert json.loads(capsys.readouterr().out) == {"x": [expected]}
    print_value(Output.YAML, timed)
    assert yaml.safe_load(capsys.readouterr().out) == expected


def test_json_is_short_for_output_json() -> None:
    made = typer.Typer()
    seen: list[tuple[Output, list[str]]] = []

    @made.command(cls=ListCommand)
    def show(names: list[str], output: OutputOption = Output.TABLE) -> None:
        seen.append((output, names))

    for line in (["a", "--json"], ["--json", "a"], ["a"], ["-o", "yaml", "--", "--json"]):
        assert CliRunner().invoke(made, line).exit_code == 0
    assert seen == [(Output.JSON, ["a"]), (Output.JSON, ["a"]), (Output.TABLE, ["a"]), (Output.YAML, ["--json"])]


def test_every_command_that_prints_a_list_understands_json() -> None:
    commands: list[Any] = [typer.main.get_command(app)]
    with_output = []
    while commands:
        command = commands.pop()
        commands += getattr(command, "commands", {}).values()
        if any("--output" in option.opts for option in command.params):
            with_output.append(command)
    assert len(with_output) >= 9
    assert [it.name for it in with_output if not isinstance(it, ListCommand)] == []
