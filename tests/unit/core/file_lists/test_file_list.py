"""Which files in a file list hold a range of offsets or a time, and bounds of keys that enclose every key."""

from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smq_core.file_lists.file_list import FileEntry, FileList
from smq_core.file_lists.key_bounds import MAX_BOUND_BYTES, binary_bound, lower_bound, upper_bound


def file_list(*sizes: int, appended_max: tuple[int | None, ...] = ()) -> FileList:
    files, at = [], 0
    for number, rows in enumerate(sizes):
        latest = appended_max[number] if appended_max else None
        files.append(FileEntry(path=f"s/{at}", first=at, rows=rows, bytes=rows * 10, etag="etag", appended_max=latest))
        at += rows
    return FileList(segment="s-0", end=at, files=tuple(files))


def firsts(files: tuple[FileEntry, ...]) -> list[int]:
    return [file.first for file in files]


@given(st.lists(st.integers(1, 5), max_size=8), st.integers(-2, 45), st.integers(-2, 45))
def test_the_files_of_a_range_are_those_with_any_of_its_offsets(sizes: list[int], start: int, stop: int) -> None:
    given_file_list = file_list(*sizes)
    expected = [f for f in given_file_list.files if set(range(f.first, f.end)) & set(range(start, stop))]
    assert list(given_file_list.files_between(start, stop)) == expected
    one = given_file_list.file_at(start)
    assert ([one] if one else []) == [f for f in given_file_list.files if f.first <= start < f.end]


def test_a_time_skips_the_files_that_are_wholly_older() -> None:
    found = file_list(3, 3, 3, appended_max=(10, 20, 20))
    assert [found.first_since(time) for time in (0, 10, 11, 20, 21)] == [0, 0, 3, 3, 9]


def test_a_file_of_unknown_age_is_not_skipped() -> None:
    assert file_list(3, 3, 3, appended_max=(10, None, 30)).first_since(25) == 3


@pytest.mark.parametrize(
    ("end", "ranges"), [(6, [(0, 3), (4, 2)]), (6, [(0, 3), (2, 4)]), (9, [(0, 3), (3, 3)]), (3, [(0, 3), (3, 0)])]
)
def test_files_with_a_gap_or_an_overlap_are_refused(end: int, ranges: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match=r"end at|rows from"):
        FileList(
            segment="s-0",
            end=end,
            files=tuple(FileEntry(path="p", first=first, rows=rows, bytes=1, etag="e") for first, rows in ranges),
        )


def test_an_empty_segment_has_a_file_list_without_files() -> None:
    assert file_list().files_between(0, 10) == ()
    assert file_list().first_since(5) == 0


# ---- key bounds


@given(st.lists(st.binary(max_size=80), min_size=1))
def test_bounds_of_binary_keys_enclose_them_and_are_short(keys: list[bytes]) -> None:
    low, high = binary_bound(lower_bound(min(keys))), binary_bound(upper_bound(max(keys)))
    assert low is not None
    assert all(low <= key for key in keys)
    assert len(low) <= MAX_BOUND_BYTES
    if high is not None:
        assert all(key <= high for key in keys)
        assert len(high) <= MAX_BOUND_BYTES


@given(st.lists(st.text(max_size=80), min_size=1))
def test_bounds_of_text_keys_enclose_them_and_are_short(keys: list[str]) -> None:
    low, high = lower_bound(min(keys)), upper_bound(max(keys))
    assert isinstance(low, str)
    assert all(low.encode() <= key.encode() for key in keys)
    assert len(low.encode()) <= MAX_BOUND_BYTES
    if isinstance(high, str):
        assert all(key.encode() <= high.encode() for key in keys)
        assert len(high.encode()) <= MAX_BOUND_BYTES


def test_long_maxima_are_rounded_up_or_unknown() -> None:
    cut = MAX_BOUND_BYTES
    assert binary_bound(upper_bound(b"a" * 100)) == b"a" * (cut - 1) + b"b"
    assert binary_bound(upper_bound(b"a" + b"\xff" * 100)) == b"b"
    assert upper_bound(b"\xff" * 100) is None
    assert upper_bound("a" * 100) == "a" * (cut - 1) + "b"
    assert upper_bound("\U0010ffff" * 100) is None
    assert upper_bound("\ud7ff" * 30) == "\ud7ff" * 20 + "\ue000", "surrogates are no text"


def test_short_keys_and_integers_are_their_own_bounds() -> None:
    assert (lower_bound(-5), upper_bound(2**64 - 1)) == (-5, 2**64 - 1)
    assert (lower_bound("k"), upper_bound("k" * MAX_BOUND_BYTES)) == ("k", "k" * MAX_BOUND_BYTES)
    assert upper_bound(b"\xff") == b64encode(b"\xff").decode()
    assert (lower_bound(None), upper_bound(None)) == (None, None)
