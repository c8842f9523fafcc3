"""Every console block of README.md runs as written, with the output that is shown there.

For `make` targets the test only checks that they exist, because they take minutes and other tests run them.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from smq_storage.process.ports import free_port
from support.doc_blocks import REPOSITORY, check_outputs, console_blocks, fenced, paste
from support.processes.cli import environment, smq
from support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.slow]

# The block for analysts, on the flights of the block before it.
ANALYSE = 'sed -i "s/\\$SMQ_LEADER/$SMQ_LEADER/" analyst.py && python analyst.py'


def test_the_blocks_are_found() -> None:
    assert [len(block) > 0 for block in console_blocks("README.md")] == [True, True]


def test_the_make_targets_exist() -> None:
    targets = [c.split()[1] for block in console_blocks("README.md") for c, _ in block if c.startswith("make ")]

    assert targets == ["demo", "test"]
    for target in targets:
        subprocess.run(["make", "-n", target], cwd=REPOSITORY, check=True, capture_output=True)


def test_the_command_line_block_runs_and_says_what_is_written(tmp_path: Path) -> None:
    (block,) = [b for b in console_blocks("README.md") if not b[0][0].startswith("make ")]
    (tmp_path / "examples").symlink_to(REPOSITORY / "examples")
    scripts = Path(sys.executable).parent
    (tmp_path / ".venv").symlink_to(scripts.parent)

    (tmp_path / "analyst.py").write_text(fenced("README.md", "python")[1].replace("localhost:7070", "$SMQ_LEADER"))
    commands = [command for command, _ in block]
    assert commands[-1].startswith("smq dev stop")
    *outputs, analysed, stopped = paste_with_dev([*commands[:-1], ANALYSE, commands[-1]], tmp_path)

    assert "UA" in analysed and "58665" in analysed.replace(",", ""), analysed
    check_outputs(block, [*outputs, stopped])


def test_the_first_minutes_are_a_part_of_it() -> None:
    (block,) = [b for b in console_blocks("README.md") if not b[0][0].startswith("make ")]
    shown = {command.partition("  #")[0].strip() for command, _ in block}
    (first,) = console_blocks("docs/index.md")
    assert {command.partition("  #")[0].strip() for command, _ in first[1:]} <= shown
    assert first[0][0].startswith("python3 -m venv .venv && source .venv/bin/activate && pip install '.[local]'")


def test_the_python_block_runs(leader: str, tmp_path: Path) -> None:
    code, _ = fenced("README.md", "python")
    program = tmp_path / "readme.py"
    # Other tests share this leader, so the topic has its own name.
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


def paste_with_dev(commands: list[str], folder: Path) -> list[str]:
    """The output of each command. Another port than the default takes the place of it, which may be in use."""
    address = f"127.0.0.1:{free_port()}"
    try:
        return paste(commands, folder, environment() | {"SMQ_DEV_LISTEN": address, "SMQ_LEADER": address})
    finally:
        smq("dev", "stop", "--dir", str(folder / ".smq"))  # after a failure
