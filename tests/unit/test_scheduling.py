"""The tests of a folder that shares something slow run in one worker, and folders that take long begin first.

What a folder shares ends with its last test.
"""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.scheduling import FIRST, ONE_WORKER, FolderScheduling, in_order

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("folder", sorted({*ONE_WORKER, *FIRST}))
def test_the_folders_have_tests(folder: str) -> None:
    assert any((ROOT / folder).rglob("test_*.py"))


def test_a_named_folder_or_else_a_file_stays_in_one_worker() -> None:
    scheduling = object.__new__(FolderScheduling)
    assert scheduling._split_scope("tests/spark/test_sinks.py::test_a[x::y]") == "tests/spark/"
    assert scheduling._split_scope("tests/unit/test_a.py::Rules::test_b") == "tests/unit/test_a.py"


def test_the_order_within_a_folder_is_kept() -> None:
    def items(*names: str) -> list[Any]:
        return [SimpleNamespace(nodeid=f"tests/{name}") for name in names]

    given = items("integration/cli/b", "integration/kube/b", "integration/kube/a", "unit/a", "simulation/a", "spark/a")
    expected = ("integration/kube/b", "integration/kube/a", "spark/a", "simulation/a", "integration/cli/b", "unit/a")
    assert in_order(given) == items(*expected)


@pytest.mark.parametrize("conftest", sorted((ROOT / "tests").rglob("conftest.py")), ids=lambda it: it.parent.name)
def test_folders_that_share_processes_are_packages(conftest: Path) -> None:
    """Or else pytest ends a fixture of scope "package" with the run, and its processes slow the other folders down."""
    shares = re.search(r"support\.(processes|kube)\.\w+ import|scope=\"package\"", conftest.read_text())
    assert not shares or (conftest.parent / "__init__.py").exists() or conftest.parent.name == "chaos"
