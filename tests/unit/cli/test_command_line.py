"""What all commands have in common, and those that need no leader."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.testing import CliRunner

from smq.cli import main
from smq.cli.app import app
from smq.cli.commands.examples import example_manifests
from smq.cli.connection.session import reported
from smq_storage.topic_manifests.parser import parse_document

REPOSITORY = Path(__file__).resolve().parents[3]
# They call no leader, and wait for nothing.
WITHOUT_LEADER = {"example", "spark", "dev status"}


def commands() -> Iterator[tuple[str, list[str]]]:
    """Each command with its options."""

    def walk(command: object, path: str) -> Iterator[tuple[str, list[str]]]:
        children = getattr(command, "commands", {})
        for name, child in children.items():
            yield from walk(child, f"{path} {name}".strip())
        if not children:
            yield path, [option for parameter in command.params for option in parameter.opts]  # type: ignore[attr-defined]

    yield from walk(typer.main.get_command(app), "")


def test_every_command_that_waits_has_a_timeout() -> None:
    found = dict(commands())
    assert len(found) > 25
    assert {name for name, options in found.items() if "--timeout" not in options} == WITHOUT_LEADER


@pytest.mark.parametrize("line", ["dev", "publish", "topic compact"])
def test_the_lines_of_help_are_broken_by_the_terminal(line: str) -> None:
    command = typer.main.get_command(app)
    for name in line.split():
        command = command.commands[name]  # type: ignore[attr-defined]
    paragraphs = (command.help or "").split("\n\n")
    assert len(paragraphs) > 1 and not any("\n" in paragraph for paragraph in paragraphs)


def test_an_option_of_all_commands_that_comes_too_late_is_explained() -> None:
    ran = CliRunner().invoke(app, ["topic", "list", "--leader", "localhost:7070"], env={"COLUMNS": "200"})
    assert ran.exit_code == 2 and "Write it before the command: smq --leader HOST:PORT" in ran.output


def test_ctrl_c_while_modules_are_loaded_ends_it_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    load = builtins.__import__

    def interrupted(name: str, *args: Any) -> Any:
        if name == "smq.cli.app":
            raise KeyboardInterrupt
        return load(name, *args)

    monkeypatch.setattr(builtins, "__import__", interrupted)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130


def test_a_command_works_without_standard_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    calls: list[str] = []
    reported(lambda: calls.append("called"))()
    assert calls == ["called"]


@pytest.mark.parametrize("name", sorted(example_manifests()))
def test_an_example_is_that_of_the_repository_and_valid(name: str) -> None:
    text = example_manifests()[name]
    assert text == (REPOSITORY / "examples" / "topics" / f"{name}.yaml").read_text()
    assert parse_document(text).topic.name == name


def test_an_example_is_printed_as_it_is() -> None:
    assert CliRunner().invoke(app, ["example", "events"]).output == example_manifests()["events"]
    ran = CliRunner().invoke(app, ["example", "nothing"])
    assert ran.exit_code == 1 and "there are events, flights" in ran.output


def test_the_options_of_create_make_a_manifest() -> None:
    line = "topic create travel/t --partitions 64 --column a:string --column b:int32? --key a --durability Stored"
    ran = CliRunner().invoke(app, [*line.split(), "--segments-min", "2", "--retention", "7d", "--dry-run"])
    assert yaml.safe_load(ran.output) == {
        "apiVersion": "seaweedmq.io/v1alpha1",
        "kind": "Topic",
        "metadata": {"name": "t", "namespace": "travel"},
        "spec": {
            "partitions": 64,
            "key": "a",
            "schema": [{"name": "a", "type": "string"}, {"name": "b", "type": "int32", "nullable": True}],
            "durability": "Stored",
            "segments": {"min": 2},
            "retention": {"age": "7d"},
        },
    }
    assert parse_document(ran.output).topic.full_name == "travel/t"


@pytest.mark.parametrize("column", ["a", "a:", ":int32", "a:?"])
def test_a_column_needs_a_name_and_a_type(column: str) -> None:
    ran = CliRunner().invoke(app, ["topic", "create", "t", "--column", column, "--dry-run"])
    assert ran.exit_code == 1 and "NAME:TYPE" in ran.output
