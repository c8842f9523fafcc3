"""The tests of a folder that shares something slow run in one worker, and folders that take long begin first."""

from __future__ import annotations

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
