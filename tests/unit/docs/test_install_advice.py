"""Nothing advises to install this package by a name that nobody owns: whoever takes it would run their code there."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from smq_storage.process.extras import install_command

REPOSITORY = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
BY_NAME = re.compile(r"\binstall\b[^\n|`]*[\s'\"](?:seaweedmq|smq)(?:\[|[\s'\"`]|$)")


def test_no_page_and_no_message_installs_the_package_by_its_name() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    texts = [
        REPOSITORY / name
        for name in listed.stdout.splitlines()
        if Path(name).suffix in (".md", ".py", ".yaml", ".txt", ".tpl", ".toml") and not name.startswith("tests/")
    ]
    assert len(texts) > 500
    found = {
        f"{path.relative_to(REPOSITORY)}: {line.strip()}"
        for path in texts
        if path.exists()
        for line in path.read_text().splitlines()
        if "pip" in line and BY_NAME.search(line)
    }
    assert not found


def test_the_search_finds_such_advice() -> None:
    for wrong in ("pip install 'seaweedmq[local]'", "pip install seaweedmq", 'pip install "smq"'):
        assert BY_NAME.search(wrong)


@pytest.mark.parametrize("extra", sorted(PROJECT["optional-dependencies"]))
def test_the_advice_names_a_clone_and_the_wheel_of_this_version(extra: str) -> None:
    said = install_command(extra)
    assert f"pip install '.[{extra}]' in a clone" in said
    assert f"pip install './seaweedmq-{PROJECT['version']}-py3-none-any.whl[{extra}]'" in said
