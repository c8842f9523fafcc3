"""Every console block of README.md runs as written, with the output that is shown there.

Bash reads the lines `$ command` of a block from its input, as when they are pasted. The lines below a command are its
output: digits may differ, and `…` matches anything to the end of the line. For `make` targets the test only checks that
they exist, because they take minutes and other tests run them.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from smq_storage.process.ports import free_port
from support.processes.cli import environment, smq
from support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.slow]

REPOSITORY = Path(__file__).resolve().parents[3]
README = (REPOSITORY / "README.md").read_text()
MARK = "=== end of command"
ANALYSE = 'sed -i "s/\\$SMQ_LEADER/$SMQ_LEADER/" analyst.py && python analyst.py'
"""The block for analysts, on the flights of the block before it."""


def console_blocks(text: str) -> list[list[tuple[str, list[str]]]]:
    """Of each block, its commands with the lines of output written below them."""
    blocks = []
    for block in re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        commands: list[tuple[str, list[str]]] = []
        for line in block.splitlines():
            if line.startswith("$ "):
                commands.append((line[2:], []))
            else:
                commands[-1][1].append(line)
        blocks.append(commands)
    return blocks


def matches(expected: str, line: str) -> bool:
    def plain(text: str) -> str:
        return re.sub(r"[\d,]+", "0", " ".join(text.split()))

    head, dots, _ = expected.partition("…")
    return plain(line).startswith(plain(head)) if dots else plain(line) == plain(head)


def test_the_blocks_are_found() -> None:
    assert [len(block) > 0 for block in console_blocks(README)] == [True, True]


def test_the_make_targets_exist() -> None:
    targets = [c.split()[1] for block in console_blocks(README) for c, _ in block if c.startswith("make ")]

    assert targets == ["demo", "test"]
    for target in targets:
        subprocess.run(["make", "-n", target], cwd=REPOSITORY, check=True, capture_output=True)


def test_the_command_line_block_runs_and_says_what_is_written(tmp_path: Path) -> None:
    (block,) = [b for b in console_blocks(README) if not b[0][0].startswith("make ")]
    (tmp_path / "examples").symlink_to(REPOSITORY / "examples")
    scripts = Path(sys.executable).parent
    (tmp_path / ".venv").symlink_to(scripts.parent)

    (tmp_path / "analyst.py").write_text(python_blocks()[1].replace("localhost:7070", "$SMQ_LEADER"))
    commands = [command for command, _ in block]
    assert commands[-1].startswith("smq dev stop")
    *outputs, analysed, stopped = paste([*commands[:-1], ANALYSE, commands[-1]], tmp_path)
    outputs.append(stopped)

    assert "UA" in analysed and "58665" in analysed.replace(",", ""), analysed
    assert len(outputs) == len(block), outputs
    for (command, expected), output in zip(block, outputs, strict=True):
        assert "smq: " not in output and "Traceback" not in output, (command, output)
        lines = output.splitlines()
        for line in expected:
            assert any(matches(line, found) for found in lines), (command, line, output)


def python_blocks() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def test_the_python_block_runs(leader: str, tmp_path: Path) -> None:
    code, _ = python_blocks()
    program = tmp_path / "readme.py"
    # Other tests share this leader, so the topic has a name of its own.
    program.write_text(code.replace("localhost:7070", leader).replace('"events"', '"readme"'))
    assert smq("topic", "create", "readme", "--partitions", "256", leader=leader).code == 0
    with (tmp_path / "out").open("wb") as out:
        running = subprocess.Popen([sys.executable, program], stdout=out, stderr=out, env=environment())
    try:
        # It reads for ever, as a consumer does.
        printed = eventually(lambda: (text := (tmp_path / "out").read_text()).count("b'two'") and text)
    finally:
        running.kill()
        running.wait()

    assert re.match(r"Receipt\(segment='readme-0-256-\d+', offset=\d+\)\n", printed), printed
    assert "b'payload'" in printed and "Traceback" not in printed


def paste(commands: list[str], folder: Path) -> list[str]:
    """The output of each command. Another port than the default takes the place of it, which may be in use."""
    address = f"127.0.0.1:{free_port()}"
    ports = {"SMQ_DEV_LISTEN": address, "SMQ_LEADER": address}
    lines = "".join(f"{command}\necho '{MARK}'\n" for command in commands)
    try:
        done = subprocess.run(
            ["bash", "-s"],
            input=lines,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=540,
            env=environment() | ports,
            check=False,
        )
    finally:
        smq("dev", "stop", "--dir", str(folder / ".smq"))  # after a failure
    return done.stdout.split(f"{MARK}\n")[:-1]
