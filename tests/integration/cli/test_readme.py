"""Every console block of README.md runs as written, with the output that is shown there.

Bash runs the lines `$ command`, all commands of a block in one shell. The lines below a command are its output: digits
may differ, and `…` matches anything to the end of the line. For `make` targets the test only checks that they exist,
because they take minutes and other tests run them.
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

    outputs = run_in_one_shell([wait_when_needed(command) for command, _ in block], tmp_path)

    for (command, expected), output in zip(block, outputs, strict=True):
        assert "smq: " not in output and "Traceback" not in output, (command, output)
        lines = output.splitlines()
        for line in expected:
            assert any(matches(line, found) for found in lines), (command, line, output)


def test_the_python_block_runs(leader: str, tmp_path: Path) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    program = tmp_path / "readme.py"
    program.write_text(code.replace("localhost:7070", leader))
    assert smq("apply", "-f", str(REPOSITORY / "examples/topics/events.yaml"), leader=leader).code == 0
    with (tmp_path / "out").open("wb") as out:
        running = subprocess.Popen([sys.executable, program], stdout=out, stderr=out, env=environment())
    try:
        # It reads for ever, as a consumer does.
        printed = eventually(lambda: (text := (tmp_path / "out").read_text()).count("b'two'") and text)
    finally:
        running.kill()
        running.wait()

    assert re.match(r"Receipt\(segment='events-0-256-\d+', offset=\d+\)\n", printed), printed
    assert "b'payload'" in printed and "Traceback" not in printed


def wait_when_needed(command: str) -> str:
    """Makes `smq dev` wait until it is ready, as a user would, and use a free port, as 7070 may be in use."""
    if command.startswith("smq dev"):
        port = free_port()
        started = (
            command.split("#")[0]
            .replace("smq dev", f"smq dev --listen 127.0.0.1:{port}")
            .replace("&", "> dev.log 2>&1 &")
        )
        ready = "for i in $(seq 3000); do grep -q 'Ctrl-C stops' dev.log && break; sleep 0.1; done; cat dev.log"
        return f"export SMQ_LEADER=127.0.0.1:{port}\n{started}\n{ready}"
    if command.startswith("kill"):
        return f"{command.split('#')[0]}\nwait"
    return command


def run_in_one_shell(commands: list[str], folder: Path) -> list[str]:
    """The output of each. Job control is on, so that `%1` is the first job in the background."""
    script = "set -m\n" + "".join(f"{{\n{command}\n}} 2>&1\necho '{MARK}'\n" for command in commands)
    done = subprocess.run(
        ["bash", "-c", script], cwd=folder, capture_output=True, text=True, timeout=540, env=environment(), check=False
    )
    assert "no leader" not in done.stdout, done.stdout
    return done.stdout.split(f"{MARK}\n")[:-1]
