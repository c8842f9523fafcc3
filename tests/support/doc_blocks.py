"""The fenced blocks of a page, and how those of a console are run as if they were pasted.

Bash reads the lines `$ command` of a block from its input. The lines below a command are its output: digits may differ,
and `…` matches anything to the end of the line.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
MARK = "=== end of command"

# Each command with the lines of output written below it.
Commands = list[tuple[str, list[str]]]


def fenced(page: str, language: str) -> list[str]:
    """The blocks of this language in a page of the repository, such as ``docs/files.md``."""
    text = (REPOSITORY / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def console_blocks(page: str) -> list[Commands]:
    """The commands of each console block."""
    blocks = []
    for block in fenced(page, "console"):
        commands: Commands = []
        for line in block.splitlines():
            if line.startswith("$ "):
                commands.append((line[2:], []))
            elif commands[-1][0].endswith("\\"):
                commands[-1] = (f"{commands[-1][0]}\n{line}", [])
            else:
                commands[-1][1].append(line)
        blocks.append(commands)
    return blocks


def renamed(text: str, names: Mapping[str, str]) -> str:
    """The text with other names of topics, so that pages do not share them. Names of files stay."""
    for name, other in names.items():
        text = re.sub(rf"(?<![\w/]){name}(?![\w.])", other, text)
    return text


def paste(commands: Sequence[str], folder: Path, environment: Mapping[str, str]) -> list[str]:
    """The output of each command that bash has run."""
    return [output for output, _ in run_commands(commands, folder, environment)]


def run_commands(commands: Sequence[str], folder: Path, environment: Mapping[str, str]) -> list[tuple[str, int]]:
    """The output and the exit code of each command that bash has run."""
    lines = "".join(f'{command}\necho "{MARK} $?"\n' for command in commands)
    scripts = Path(sys.executable).parent  # as after `source .venv/bin/activate`
    done = subprocess.run(
        ["bash", "-s"],
        input=lines,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=540,
        env={**environment, "PATH": f"{scripts}:{environment['PATH']}"},
        check=False,
    )
    *parts, _ = re.split(rf"{MARK} (\d+)\n", done.stdout)
    return [(output, int(code)) for output, code in zip(parts[::2], parts[1::2], strict=True)]


def check_outputs(block: Commands, outputs: Sequence[str]) -> None:
    """Each command has run without an error, and printed what the page says."""
    assert len(outputs) == len(block), outputs
    for (command, expected), output in zip(block, outputs, strict=True):
        fails = any(line.startswith("smq: ") for line in expected)
        assert fails == ("smq: " in output) and "Traceback" not in output, (command, output)
        lines = output.splitlines()
        for line in expected:
            assert any(_matches(line, found) for found in lines), (command, line, output)


def _matches(expected: str, line: str) -> bool:
    def plain(text: str) -> str:
        return re.sub(r"[\d,]+", "0", " ".join(text.split()))

    head, dots, _ = expected.partition("…")
    return plain(line).startswith(plain(head)) if dots else plain(line) == plain(head)
