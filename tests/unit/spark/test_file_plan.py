"""Every offset is read exactly once: by Spark's own scan if it can, by the data source otherwise."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_smq.planning.wanted import TimeBounds, Wanted
from pyspark_smq.table.file_plan import FilePlan, UploadRows, is_hidden, plan_files
from smq_core.file_lists.file_list import FileEntry
from smq_storage.catalog import paths

S = "t-0-16-0"
ALL = Wanted()


def chunk(first: int, rows: int) -> FileEntry:
    return FileEntry(
        path=paths.chunk("default/t", "u", S, first), first=first, rows=rows, bytes=100, etag="e", appended_min=first
    )


def upload(first: int, rows: int, first_row: int, name: str = "p-1-1-n.parquet") -> FileEntry:
    path = paths.uploaded_file("u", name)
    return FileEntry(
        path=path, first=first, rows=rows, bytes=100, etag="e", appended_min=9, appended_max=9, first_row=first_row
    )


def plan(start: int, stop: int, *files: FileEntry, wanted: Wanted = ALL) -> FilePlan:
    return plan_files({S: (start, stop)}, {S: files}, wanted)


def test_whole_chunks_are_scanned_and_the_tail_is_the_rest() -> None:
    found = plan(0, 25, chunk(0, 10), chunk(10, 10))
    assert found.chunks == {0: [chunk(0, 10).path, chunk(10, 10).path]}
    assert found.rest == {S: [(20, 25)]}


def test_without_a_native_scan_the_data_source_reads_what_is_wanted() -> None:
    known = [replace(chunk(n, 10), timestamp_min=n, timestamp_max=n + 9) for n in (0, 10, 20)]
    known.append(upload(30, 10, 0))
    found = plan_files({S: (3, 45)}, {S: known}, Wanted(timestamp=TimeBounds(25, None)), natively=False)
    assert (found.chunks, found.uploads, found.rest, found.skipped) == ({}, {}, {S: [(20, 45)]}, 2)


def test_parts_of_chunks_are_read_by_the_data_source() -> None:
    found = plan(3, 17, chunk(0, 10), chunk(10, 10))
    assert (found.chunks, found.rest) == ({}, {S: [(3, 17)]})


def test_parts_of_uploads_are_row_ranges() -> None:
    found = plan(3, 12, upload(0, 10, 100), upload(10, 10, 500, "q.parquet"))
    assert found.uploads == {
        0: [
            UploadRows("_uploads/u/p-1-1-n.parquet", 103, 7, S, 3, 9),
            UploadRows("_uploads/u/q.parquet", 500, 2, S, 10, 9),
        ]
    }
    assert not found.rest


def test_files_with_large_values_are_read_by_the_data_source() -> None:
    found = plan(0, 20, chunk(0, 10), replace(chunk(10, 10), large_values=("v",)))
    assert (found.chunks, found.rest) == ({0: [chunk(0, 10).path]}, {S: [(10, 20)]})


def test_files_whose_names_spark_hides_are_read_by_the_data_source() -> None:
    assert plan(0, 10, upload(0, 10, 0, "_mine.parquet")).rest == {S: [(0, 10)]}
    assert is_hidden("a/.b") and is_hidden("a/_b") and is_hidden("b._COPYING_")
    assert not is_hidden("_uploads/b") and not is_hidden("_a=b")


def test_files_of_a_compaction_are_read_by_themselves() -> None:
    compacted = replace(chunk(0, 10), path=f"default/t/u/{S}/c-1.parquet")
    assert plan(0, 10, compacted).compacted == {0: [compacted.path]}


def test_files_without_wanted_messages_are_left_out_and_counted() -> None:
    known = [replace(chunk(n, 10), timestamp_min=n, timestamp_max=n + 9) for n in (0, 10, 20)]
    found = plan(0, 35, *known, wanted=Wanted(timestamp=TimeBounds(12, 13)))
    assert found.chunks == {0: [known[1].path]} and found.skipped == 2
    assert found.rest == {S: [(30, 35)]}, "nothing is known of the tail"


@given(
    sizes=st.lists(st.tuples(st.integers(1, 5), st.sampled_from(["chunk", "upload", "large"])), max_size=6),
    bounds=st.tuples(st.integers(0, 40), st.integers(0, 40)),
)
def test_every_offset_is_read_exactly_once(sizes: list[tuple[int, str]], bounds: tuple[int, int]) -> None:
    files: list[FileEntry] = []
    for rows, kind in sizes:
        at = files[-1].end if files else 0
        made = upload(at, rows, 7 * at) if kind == "upload" else chunk(at, rows)
        files.append(replace(made, large_values=("v",)) if kind == "large" else made)
    start, stop = min(bounds), max(bounds)
    found = plan(start, stop, *files)
    by_path = {file.path: file for file in files}
    read = [offset for path in found.chunks.get(0, ()) for offset in range(by_path[path].first, by_path[path].end)]
    read += [offset for it in found.uploads.get(0, ()) for offset in range(it.first, it.first + it.rows)]
    read += [offset for ranges in found.rest.values() for pair in ranges for offset in range(*pair)]
    assert sorted(read) == list(range(start, stop))
    for it in found.uploads.get(0, ()):
        assert it.first_row == 7 * next(f.first for f in files if f.first <= it.first < f.end) + it.first - next(
            f.first for f in files if f.first <= it.first < f.end
        )
    for ranges in found.rest.values():
        assert all(one[1] < other[0] for one, other in pairwise(ranges)), "neighbours are one"


def test_files_of_two_versions_of_the_schema_are_apart() -> None:
    found = plan(0, 20, chunk(0, 10), replace(chunk(10, 10), schema_version=1))
    assert found.chunks == {0: [chunk(0, 10).path], 1: [chunk(10, 10).path]}


@pytest.mark.parametrize("stop", [0, 5])
def test_nothing_wanted_is_nothing_planned(stop: int) -> None:
    found = plan(stop, stop, chunk(0, 10))
    assert not (found.chunks or found.uploads or found.rest)
