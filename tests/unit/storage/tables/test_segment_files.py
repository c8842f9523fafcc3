"""The files of a segment without a file list: its chunks, requested one after the other or at the same time."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor

import pytest

from smq_core.errors import DataLost
from smq_storage.catalog import paths
from smq_storage.object_store import absence
from smq_storage.object_store.store import ObjectInfo, open_store
from smq_storage.tables.segment_files import files_between
from support.data.stored_segment import SEGMENT, TOPIC, UID, CountingStore, write_segment

SIZES = (3, 4, 5)
END = sum(SIZES)


class OldListings(CountingStore):
    """Its listings lack the chunk at offset 3."""

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        return (it for it in super().list(prefix, start_after) if paths.first_offset(it.path) != SIZES[0])


@pytest.fixture(params=[CountingStore, OldListings])
def store(request: pytest.FixtureRequest) -> CountingStore:
    made: CountingStore = request.param(open_store("memory://"))
    return made


@pytest.fixture
def executor() -> Iterator[Executor]:
    with ThreadPoolExecutor(4) as made:
        yield made


@pytest.mark.parametrize(("start", "stop", "firsts"), [(0, END, [0, 3, 7]), (4, 8, [3, 7]), (3, 7, [3]), (5, 5, [])])
def test_requests_ahead_find_the_same_files(
    store: CountingStore, executor: Executor, start: int, stop: int, firsts: list[int]
) -> None:
    segment = write_segment(store, *SIZES, file_list=False)
    found = list(files_between(store, segment, start, stop, "number"))
    assert [file.first for file in found] == firsts
    assert list(files_between(store, segment, start, stop, "number", executor)) == found
    assert [(file.key_min, file.key_max) for file in found] == [(file.first, file.end - 1) for file in found]


@pytest.mark.parametrize("is_ahead", [False, True])
def test_a_chunk_that_is_gone_is_a_loss(
    store: CountingStore, executor: Executor, monkeypatch: pytest.MonkeyPatch, is_ahead: bool
) -> None:
    monkeypatch.setattr(absence, "CONFIRM_AFTER_SECONDS", 0.0)
    segment = write_segment(store, *SIZES, file_list=False)
    store.delete(paths.chunk(TOPIC, UID, SEGMENT, 7))
    with pytest.raises(DataLost, match="from offset 7 on"):
        list(files_between(store, segment, 0, END, None, executor if is_ahead else None))
