"""The leader merges a run of small files only if that saves more requests than it costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from smq_core.file_lists.file_list import FileEntry
from smq_core.file_lists.small_files import (
    MAX_FILES,
    MAX_SMALL_FILE_BYTES,
    MIN_FILES,
    SMALL_FILE_BYTES,
    TARGET_BYTES,
    SmallFilePolicy,
)

KIB = 1024


def files_of(sizes: Sequence[int], versions: Sequence[int] | None = None) -> list[FileEntry]:
    """One file for each size, with one row each."""
    return [
        FileEntry(path=f"f{i}", first=i, rows=1, bytes=size, etag="e", schema_version=versions[i] if versions else 0)
        for i, size in enumerate(sizes)
    ]


def plan(
    files: Sequence[FileEntry],
    policy: SmallFilePolicy | None = None,
    is_mergeable: Callable[[FileEntry], bool] = lambda _: True,
) -> list[tuple[int, int]]:
    return [(run.first, run.end) for run in (policy or SmallFilePolicy()).plan(files, is_mergeable)]


def test_a_run_of_small_files_is_merged_and_one_fewer_is_not() -> None:
    assert plan(files_of([KIB] * MIN_FILES)) == [(0, MIN_FILES)]
    assert plan(files_of([KIB] * (MIN_FILES - 1))) == []


def test_a_file_of_the_limit_is_not_small() -> None:
    small = [SMALL_FILE_BYTES - 1] * MIN_FILES
    assert plan(files_of([*small, SMALL_FILE_BYTES, *small])) == [(0, 16), (17, 33)]
    assert plan(files_of([SMALL_FILE_BYTES] * 40)) == []


def test_files_that_must_stay_split_a_run() -> None:
    files = files_of([KIB] * 40)
    assert plan(files, is_mergeable=lambda file: file.path != "f10") == [(11, 40)]


def test_files_of_two_schema_versions_are_not_merged() -> None:
    assert plan(files_of([KIB] * 40, [0] * 17 + [1] * 23)) == [(0, 17), (17, 40)]


def test_one_merge_has_a_limited_number_of_files() -> None:
    assert plan(files_of([1] * (MAX_FILES + MIN_FILES))) == [(0, MAX_FILES), (MAX_FILES, MAX_FILES + MIN_FILES)]


def test_nothing_is_small_if_merging_is_off() -> None:
    assert plan(files_of([0, *[1] * 40]), SmallFilePolicy(0)) == []


@given(st.lists(st.integers(1, 2 * SMALL_FILE_BYTES), max_size=200), st.integers(0, MAX_SMALL_FILE_BYTES))
def test_every_run_is_small_and_saves_requests(sizes: list[int], below: int) -> None:
    for run in SmallFilePolicy(below).plan(files_of(sizes), lambda _: True):
        assert len(run.files) >= MIN_FILES
        assert run.bytes <= TARGET_BYTES
        assert all(file.bytes < below for file in run.files)
