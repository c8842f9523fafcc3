"""Runs of small neighbours are merged, nothing else, and the next file list has no gap."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smq_core.file_lists.compaction_plan import plan_compaction, with_merged_files
from smq_core.file_lists.file_list import FileEntry, FileList

TARGET = 100


def files_of(sizes: list[int], versions: list[int] | None = None) -> tuple[FileEntry, ...]:
    """One file for each size, with ten rows each."""
    return tuple(
        FileEntry(
            path=f"f{i}", first=10 * i, rows=10, bytes=size, etag="e", schema_version=versions[i] if versions else 0
        )
        for i, size in enumerate(sizes)
    )


def offsets(files: tuple[FileEntry, ...]) -> list[tuple[int, int]]:
    return [(run.first // 10, run.end // 10) for run in plan_compaction(files, TARGET, lambda _: True)]


def test_neighbours_are_merged_up_to_the_target() -> None:
    assert offsets(files_of([30, 30, 30, 30, 30])) == [(0, 3), (3, 5)]


def test_large_files_stay_and_a_small_one_without_a_neighbour_too() -> None:
    assert offsets(files_of([10, 60, 10, 10, 50])) == [(2, 4)]


def test_files_of_two_schema_versions_are_not_merged() -> None:
    assert offsets(files_of([10, 10, 10, 10], [0, 0, 1, 1])) == [(0, 2), (2, 4)]


def test_what_cannot_be_merged_stays() -> None:
    runs = plan_compaction(files_of([10, 10, 10, 10, 10]), TARGET, lambda file: file.path != "f2")
    assert [(run.first, run.end) for run in runs] == [(0, 20), (30, 50)]


@given(st.lists(st.integers(1, 120), max_size=40), st.data())
def test_what_a_compaction_leaves_is_left_alone_by_the_next(sizes: list[int], data: st.DataObject) -> None:
    file_list = FileList(segment="s", end=10 * len(sizes), files=files_of(sizes))
    runs = plan_compaction(file_list.files, TARGET, lambda _: True)
    assert all(len(run.files) > 1 and run.bytes <= TARGET for run in runs)
    merged = [FileEntry(path="m", first=run.first, rows=run.end - run.first, bytes=run.bytes, etag="e") for run in runs]
    done = data.draw(st.lists(st.sampled_from(merged), unique=True)) if merged else []
    following = with_merged_files(file_list, done, "n")
    assert (following.version, following.nonce, following.end) == (1, "n", file_list.end)
    assert [file for file in following.files if file.path == "m"] == sorted(done, key=lambda file: file.first)
    complete = with_merged_files(file_list, merged, "n")
    again = plan_compaction(complete.files, TARGET, lambda _: True)
    assert len(again) <= len(runs)


def test_a_merged_file_must_replace_whole_files() -> None:
    file_list = FileList(segment="s", end=30, files=files_of([1, 1, 1]))
    with pytest.raises(ValueError, match="from"):
        with_merged_files(file_list, [FileEntry(path="m", first=0, rows=15, bytes=1, etag="e")], "n")
