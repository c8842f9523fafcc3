"""The commands of docs/elasticity.md run as written, for a minute of virtual time; those that take long are parsed."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path

import pytest

from benchmarks.elastic.shapes import SHAPES
from support.doc_blocks import REPOSITORY, console_blocks, run_commands

pytestmark = [pytest.mark.simulation, pytest.mark.slow]

PAGE = "docs/elasticity.md"
PYTHON = ".venv/bin/python"
COMMANDS = [
    shlex.split(command, comments=True)
    for block in console_blocks(PAGE)
    for command, _ in block
    if f"{PYTHON} -m " in command
]
NO_OPTION = "--no-option-of-any-verb"


def run(words: list[str]) -> tuple[str, int]:
    (ran,) = run_commands([shlex.join(words).replace(PYTHON, sys.executable)], REPOSITORY, os.environ)
    return ran


def commands(*words: str) -> list[list[str]]:
    """Those with these words."""
    return [command for command in COMMANDS if set(words) <= set(command)]


def test_all_commands_are_run() -> None:
    kinds = [commands("run"), commands("picture"), commands("compare"), commands("rounds"), commands("pytest")]
    assert [len(kind) for kind in kinds] == [1, 2, 1, 1, 1]
    assert sum(map(len, kinds)) + len(commands("simulation.picture")) == len(COMMANDS)


def test_a_run_prints_the_decisions() -> None:
    (words,) = commands("run")
    output, code = run([*words, "--seconds", "60"])
    assert code == 0 and "changes sooner than the policy allows: 0" in output, output


@pytest.mark.parametrize("words", [*commands("picture"), *commands("simulation.picture")], ids=" ".join)
def test_a_picture_is_drawn(words: list[str], tmp_path: Path) -> None:
    short = ["--seconds", "60"] if "picture" in words else []
    (name,) = [word for word in words if word.endswith(".svg")]
    output, code = run([str(tmp_path / word) if word == name else word for word in words] + short)
    assert code == 0, output
    assert (tmp_path / name).read_text().startswith("<svg")


@pytest.mark.parametrize("words", [*commands("compare"), *commands("rounds")], ids=" ".join)
def test_a_long_command_takes_its_options(words: list[str]) -> None:
    """The parser ends before the work starts, because of one more option."""
    output, code = run([*words, NO_OPTION])
    assert code == 2 and output.endswith(f"error: unrecognized arguments: {NO_OPTION}\n"), output
    assert all((REPOSITORY / word).is_dir() for word in words if word.startswith("docs/"))


def test_pytest_finds_the_tests_and_takes_their_option() -> None:
    (words,) = commands("pytest")
    output, code = run([*words, "--collect-only", "--quiet"])
    assert code == 0 and Path(__file__).name in output, output


def test_the_listed_shapes_are_those_that_there_are() -> None:
    (listed,) = re.findall(r"^The shapes: ([^(]+)\(", (REPOSITORY / PAGE).read_text(), re.MULTILINE)
    assert re.findall(r"`([a-z-]+)`", listed) == list(SHAPES)
