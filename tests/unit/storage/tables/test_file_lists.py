"""File lists in the store: written once, read back, refused when damaged, made from a chain."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from smq_core.errors import CorruptDocument
from smq_core.file_lists.file_list import FileEntry, FileList
from smq_storage.catalog import paths
from smq_storage.object_store.store import Store, open_store
from smq_storage.tables.file_lists import (
    decode_file_list,
    encode_file_list,
    read_file_list,
    write_file_list,
)

AT = ("ns/t", "uid")
SEGMENT = "t-0-8-0"


def file_list(count: int = 3) -> FileList:
    files = [
        FileEntry(
            path=paths.chunk(*AT, SEGMENT, i * 10),
            first=i * 10,
            rows=10,
            bytes=500,
            etag=f'"{i}"',
            timestamp_min=1,
            timestamp_max=2,
            appended_min=3,
            appended_max=4,
            key_min="YQ==",
            key_max="Yg==",
            schema_version=2,
        )
        for i in range(count)
    ]
    if files:
        files[-1] = replace(files[-1], path="_uploads/uid/x.parquet", timestamp_min=None, key_min=-5, key_max=2**64 - 1)
    return FileList(segment=SEGMENT, end=count * 10, files=tuple(files))


@pytest.fixture
def store() -> Store:
    return open_store("memory://")


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_file_list_comes_back(store: Store, count: int) -> None:
    name = write_file_list(store, *AT, file_list(count))
    assert name == f"{SEGMENT}.00000000.json"
    assert paths.file_list_segment(paths.file_list(*AT, name)) == SEGMENT
    assert read_file_list(store, *AT, name) == file_list(count)
    assert [o.path for o in store.list(paths.file_lists_folder(*AT))] == [f"ns/t/uid/_file_lists/{name}"]


def test_a_later_version_has_a_name_of_its_own(store: Store) -> None:
    later = replace(file_list(), version=1, nonce="n1")
    assert write_file_list(store, *AT, file_list()) != (name := write_file_list(store, *AT, later))
    assert name == f"{SEGMENT}.00000001-n1.json"
    assert paths.file_list_segment(name) == SEGMENT
    assert read_file_list(store, *AT, name) == later


def test_a_second_writer_of_the_same_files_succeeds_and_changes_nothing(store: Store) -> None:
    name = write_file_list(store, *AT, file_list())
    files = tuple(replace(file, key_min=None, key_max=None) for file in file_list().files)
    assert write_file_list(store, *AT, replace(file_list(), files=files)) == name
    assert read_file_list(store, *AT, name) == file_list()


def test_a_file_list_of_other_files_is_not_replaced(store: Store) -> None:
    name = write_file_list(store, *AT, file_list(3))
    with pytest.raises(CorruptDocument, match=f"{name} lists other files"):
        write_file_list(store, *AT, file_list(2))
    assert read_file_list(store, *AT, name) == file_list(3)


def test_an_absent_file_list_is_none(store: Store) -> None:
    assert read_file_list(store, *AT, paths.file_list_name(SEGMENT, 0)) is None


def test_the_name_in_the_index_must_be_a_file_lists(store: Store) -> None:
    for name in ("../../x.json", "_layout.json", "t-0.1.json"):
        assert paths.file_list_segment(name) is None
        with pytest.raises(CorruptDocument, match="not the name of a file list"):
            read_file_list(store, *AT, name)


def test_a_damaged_file_list_is_refused_by_its_name(store: Store) -> None:
    folder = paths.segment_folder(*AT, SEGMENT)
    whole = json.loads(encode_file_list(file_list(), folder))
    gap = whole | {"files": whole["files"] | {"first": [0, 11, 20]}}
    short = whole | {"files": whole["files"] | {"etag": ["a"]}}
    another = whole | {"segment": "t-0-8-1"}
    large = whole | {"large_values": {"3": ["a.value"]}}
    name = paths.file_list_name(SEGMENT, 0)
    for damaged in (b"", b"{}", encode_file_list(file_list(), folder)[:-20], gap, short, another, large):
        store.put(paths.file_list(*AT, name), damaged if isinstance(damaged, bytes) else json.dumps(damaged).encode())
        with pytest.raises(CorruptDocument) as raised:
            read_file_list(store, *AT, name)
        assert raised.value.path == paths.file_list(*AT, name)
        assert raised.value.path in raised.value.message


def with_large_values(*names: tuple[str, ...]) -> FileList:
    found = file_list(len(names))
    files = zip(found.files, names, strict=True)
    return replace(found, files=tuple(replace(file, large_values=it) for file, it in files))


def test_the_names_of_large_values_come_back(store: Store) -> None:
    made = with_large_values(("a.value",), (), ("b.value", "c.value"))
    assert read_file_list(store, *AT, write_file_list(store, *AT, made)) == made


def test_a_file_list_without_the_names_of_large_values_is_another_one(store: Store) -> None:
    write_file_list(store, *AT, file_list(1))
    with pytest.raises(CorruptDocument, match="lists other files"):
        write_file_list(store, *AT, with_large_values(("a.value",)))


def test_a_file_list_of_a_former_release_has_no_large_values() -> None:
    folder = paths.segment_folder(*AT, SEGMENT)
    whole = json.loads(encode_file_list(file_list(), folder))
    del whole["large_values"]
    assert decode_file_list(json.dumps(whole).encode(), folder) == file_list()


def test_fields_of_a_later_release_are_ignored() -> None:
    folder = paths.segment_folder(*AT, SEGMENT)
    whole = json.loads(encode_file_list(file_list(), folder))
    whole = whole | {"later": 1, "files": whole["files"] | {"objects": [[], [], []]}}
    assert decode_file_list(json.dumps(whole).encode(), folder) == file_list()


def test_ten_thousand_files_are_small() -> None:
    folder = paths.segment_folder(*AT, SEGMENT)
    encoded = encode_file_list(file_list(10_000), folder)
    assert len(encoded) < 2_000_000
    assert decode_file_list(encoded, folder) == file_list(10_000)
