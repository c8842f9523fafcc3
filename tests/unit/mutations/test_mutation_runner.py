"""A mutation that no longer fits the code is reported, and pytest's summary is read right."""

from __future__ import annotations

from pathlib import Path

import pytest

from mutations.__main__ import SHELLS
from mutations.mutation import Mutation, StaleMutation
from mutations.runner import failed_tests, is_of

SUMMARY = """\
F.
=========================== short test summary info ============================
FAILED tests/unit/test_a.py::test_one - AssertionError: 1 - 2
FAILED tests/unit/test_a.py::test_two[a line-it says "no"] - ValueError
ERROR tests/unit/test_a.py::test_three
ERROR tests/unit/test_b.py - ImportError: no module
2 failed, 1 passed, 2 errors in 0.10s
"""


def mutation(old: str) -> Mutation:
    return Mutation("double", "A value is counted once.", "count.py", old, "total += 2", ("tests/test_count.py",))


def test_a_mutation_replaces_the_code_and_returns_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "count.py").write_text("total = 0\ntotal += 1\n")
    assert mutation("total += 1").apply(tmp_path) == "total = 0\ntotal += 1\n"
    assert (tmp_path / "count.py").read_text() == "total = 0\ntotal += 2\n"


@pytest.mark.parametrize("code", ["total = 1\n", "total += 1\ntotal += 1\n", None])
def test_a_stale_mutation_is_reported_and_changes_nothing(tmp_path: Path, code: str | None) -> None:
    if code is not None:
        (tmp_path / "count.py").write_text(code)
    with pytest.raises(StaleMutation, match=r"count\.py"):
        mutation("total += 1").apply(tmp_path)
    if code is not None:
        assert (tmp_path / "count.py").read_text() == code


def test_failed_tests_are_those_of_the_summary_and_not_files_that_were_not_collected() -> None:
    assert failed_tests(SUMMARY) == (
        "tests/unit/test_a.py::test_one",
        'tests/unit/test_a.py::test_two[a line-it says "no"]',
        "tests/unit/test_a.py::test_three",
    )


def test_a_named_test_is_itself_one_of_its_parameters_or_in_its_file() -> None:
    assert is_of("a.py::test_one", "a.py::test_one")
    assert is_of("a.py::test_one[x]", "a.py::test_one")
    assert is_of("a.py::test_one[x]", "a.py")
    assert not is_of("a.py::test_one_more", "a.py::test_one")


ALL = [mutation for table in SHELLS.values() for mutation in table]
ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("each", ALL, ids=lambda m: m.name)
def test_the_table_follows_the_code(each: Mutation) -> None:
    assert (ROOT / each.file).read_text().count(each.old) == 1
    for named in each.caught_by:
        path, _, test = named.partition("::")
        assert test.partition("[")[0] in (ROOT / path).read_text()
