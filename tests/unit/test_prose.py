"""The check of prose: idioms, long sentences, and where constants are described."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.check_prose import MAX_WORDS, check, markdown_prose

LONG = " ".join(["Word"] * MAX_WORDS)


def problems(tmp_path: Path, name: str, text: str) -> list[str]:
    path = tmp_path / name
    path.write_text(text)
    return [str(finding).removeprefix(f"{path}:") for finding in check([path])]


@pytest.mark.parametrize(
    "text",
    [
        "It waits so long.",
        "At most so many are kept.",
        "Only so much is read.",
        "Such ones are dropped.",
        "Then it is looked whether it ended.",
        "It is read on after them.",
        "It has a stream of its own.",
    ],
)
def test_an_idiom_is_found_wherever_prose_is(tmp_path: Path, text: str) -> None:
    assert len(problems(tmp_path, "a.md", f"# Title\n\n- An item\n  {text}\n")) == 1
    assert len(problems(tmp_path, "a.proto", f"int64 wait = 1;  // {text}\n")) == 1
    assert len(problems(tmp_path, "a.py", f'"""A module.\n\n{text}\n"""\n')) == 1
    assert len(problems(tmp_path, "a.py", f"def run():\n    # first line\n    # {text}\n    pass\n")) == 1


@pytest.mark.parametrize("text", ["as in `so long`", "so long as it runs", "so long that it ends", "own streams"])
def test_what_only_looks_like_an_idiom_is_exempt(tmp_path: Path, text: str) -> None:
    assert not problems(tmp_path, "a.md", text)


def test_a_sentence_has_a_limit(tmp_path: Path) -> None:
    assert not problems(tmp_path, "a.md", f"{LONG}. {LONG}.\n\n{LONG}: {LONG}\n")
    (found,) = problems(tmp_path, "a.py", f'def run():\n    """One.\n\n    {LONG[:60]}\n    {LONG[60:]} more."""\n')
    assert found.startswith(f"4: a sentence of {MAX_WORDS + 1} words")


def test_code_and_tables_of_a_page_are_no_prose() -> None:
    text = f"```\n{LONG} so many\n```\n| {LONG} so many |\n\nProse.\n"
    assert [(it.line, it.text) for it in markdown_prose(text)] == [(6, "Prose.")]


def test_a_constant_is_described_before_it(tmp_path: Path) -> None:
    after = 'A = 1\n"""What it is."""\nB: int = 2\n"""The same."""\n'
    assert problems(tmp_path, "a.py", after) == [
        "1: describe A in a comment before it",
        "3: describe B in a comment before it",
    ]
    assert not problems(tmp_path, "a.py", "# What it is.\nA = 1\n")
