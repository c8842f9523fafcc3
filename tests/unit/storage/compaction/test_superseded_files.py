"""Chunks whose rows are in merged files are deleted, and the chain still leads every walk to all rows and the seal."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pyarrow as pa
import pytest

from smq_core.errors import CorruptChunk, CorruptDocument, DataLost
from smq_core.file_lists.file_list import FileList
from smq_core.model.chunk_info import ChunkInfo
from smq_core.model.reference import Reference
from smq_core.sealing.chain_sealer import ReadChunk, UnsealedTail, seal
from smq_storage.catalog import paths
from smq_storage.chunks.chain import ChunkChain
from smq_storage.chunks.parquet_codec import encode_chunk
from smq_storage.chunks.schemas import chunk_schema
from smq_storage.compaction.file_list_switch import plan_segment, switch_file_list
from smq_storage.compaction.merging import merge_run
from smq_storage.compaction.superseded_files import DeletedChunks, delete_superseded
from smq_storage.compaction.topic_compaction import compact_topic, merge_here
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import Store, open_store
from smq_storage.tables.file_lists import read_file_list
from smq_storage.tables.range_reader import read_file
from smq_storage.tables.segment_files import StoredSegment
from smq_storage.verification.topic_files import TopicFiles
from support.data.small_chunks import NAME, ROWS, UID, make_topic, numbers, segment_name, stored
from support.data.stored_segment import COLUMNS, CountingStore, file_list_of_chain, rows_of
from support.fault_injection.crashing_store import CrashingStore, ProcessCrashed

POLICY = RetryPolicy(1.0)
CHUNKS = 20
END = CHUNKS * ROWS
# One chunk is replaced, and the others are deleted.
WRITES = CHUNKS


@pytest.fixture
def store() -> Store:
    return open_store("memory://")


def compact(store: Store, target_bytes: int = 1 << 25) -> None:
    assert all(it.switched for it in compact_topic(store, NAME, UID, "text", merge_here(store), target_bytes))


@pytest.fixture
def compacted(store: Store) -> StoredSegment:
    """A segment whose twenty chunks were merged into two files."""
    make_topic(store, chunks=CHUNKS)
    compact(store, target_bytes=sum(it.size for it in chain_of(store).files()) * 6 // 10)
    return stored(store)


def chain_of(store: Store) -> ChunkChain:
    return ChunkChain(store, NAME, UID, segment_name())


def file_list_of(store: Store) -> FileList:
    found = read_file_list(store, NAME, UID, stored(store).file_list)
    assert found is not None
    return found


def chunks(store: Store) -> list[int]:
    """The first offsets of the chunks that exist."""
    return [int(it.path[-28:-8]) for it in chain_of(store).files()]


def merged_files(store: Store) -> set[str]:
    return {it.path for it in store.list(paths.compacted_folder(NAME, UID, segment_name()))}


def problems(store: Store) -> list[str]:
    return [f"{it.path} {it.what}" for rows in (False, True) for it in TopicFiles(store, NAME, rows=rows).problems()]


def test_one_chunk_stays_for_each_merged_file_and_the_seal_chunk(store: Store, compacted: StoredSegment) -> None:
    files = file_list_of(store).files
    assert len(files) == 2
    assert delete_superseded(store, compacted, POLICY) == DeletedChunks(CHUNKS - 2, replaced=2)
    assert chunks(store) == [files[0].first, files[1].first, END]
    assert delete_superseded(store, compacted, POLICY) == DeletedChunks()


def test_the_chain_says_what_the_file_list_says(store: Store, compacted: StoredSegment) -> None:
    delete_superseded(store, compacted, POLICY)
    walked = file_list_of_chain(chain_of(store), "text")
    assert walked is not None and walked.files == file_list_of(store).files


@pytest.mark.parametrize("start", [0, 1, ROWS * 7 + 1, END - 1])
@pytest.mark.parametrize("file_list", [True, False])
def test_all_rows_are_read_from_any_offset_with_and_without_the_file_list(
    store: Store, compacted: StoredSegment, start: int, file_list: bool
) -> None:
    delete_superseded(store, compacted, POLICY)
    segment = compacted if file_list else replace(compacted, file_list="")
    assert numbers(store, segment, start) == list(range(start, END))
    assert problems(store) == []


@pytest.mark.parametrize("at", range(0, END, ROWS))
def test_whoever_walks_from_a_former_chunk_or_by_an_old_listing_finds_the_seal(
    store: Store, compacted: StoredSegment, at: int
) -> None:
    """A primary knows where it has written last, and a listing may name chunks that are gone."""
    delete_superseded(store, compacted, POLICY)
    found = chain_of(store).read_seal_chunk(at)
    assert found is not None and found.first == END
    assert chain_of(store).find(at) in chunks(store)


def test_a_sealer_that_comes_late_finds_the_seal_and_writes_nothing(store: Store, compacted: StoredSegment) -> None:
    delete_superseded(store, compacted, POLICY)
    steps, reply = seal(segment_name(), UnsealedTail()), None
    with pytest.raises(StopIteration) as done:
        while True:
            request = steps.send(reply)
            assert isinstance(request, ReadChunk)
            reply = chain_of(store).info(request.first)
    assert done.value.value.end == END


def test_a_primary_whose_first_chunk_was_replaced_still_finds_its_own(store: Store, compacted: StoredSegment) -> None:
    """It may read back a PUT whose answer was lost."""
    before = chain_of(store).info(0)
    delete_superseded(store, compacted, POLICY)
    after = chain_of(store).info(0)
    assert before is not None and after is not None
    assert (before.writer, before.nonce) == (after.writer, after.nonce)


@pytest.mark.parametrize("answer_lost", [False, True])
@pytest.mark.parametrize("left", range(WRITES))
def test_a_deletion_that_was_interrupted_loses_nothing_and_is_finished(
    store: Store, compacted: StoredSegment, left: int, answer_lost: bool
) -> None:
    with pytest.raises(ProcessCrashed):
        delete_superseded(cast(Store, CrashingStore(store, left, answer_lost=answer_lost)), compacted, POLICY)
    for segment in (compacted, replace(compacted, file_list="")):
        assert numbers(store, segment) == list(range(END))
    assert None not in [chain_of(store).find(offset) for offset in range(END)], "whichever chunks are left"
    assert problems(store) == []
    delete_superseded(store, compacted, POLICY)
    assert len(chunks(store)) == 3
    assert problems(store) == []


def test_one_call_deletes_about_as_many_as_it_may(store: Store, compacted: StoredSegment) -> None:
    first = delete_superseded(store, compacted, POLICY, max_chunks=1)
    assert not first.complete and 0 < first.chunks < CHUNKS - 2
    second = delete_superseded(store, compacted, POLICY, max_chunks=1)
    assert second.complete and first.chunks + second.chunks == CHUNKS - 2


def test_chunks_that_the_file_list_uses_stay(store: Store) -> None:
    make_topic(store, chunks=CHUNKS)
    segment = stored(store)
    (run,) = plan_segment(store, segment)
    part = replace(run, files=run.files[5:10])
    merged = merge_run(store, segment, part, "text", lambda: "n")
    assert switch_file_list(store, segment, merged, "m", POLICY)
    delete_superseded(store, stored(store), POLICY)
    kept = [first for first in range(0, END + 1, ROWS) if not 5 * ROWS < first < 10 * ROWS]
    assert chunks(store) == kept
    assert numbers(store, stored(store)) == list(range(END))
    assert problems(store) == []


def test_a_second_compaction_deletes_the_former_merged_files(store: Store, compacted: StoredSegment) -> None:
    delete_superseded(store, compacted, POLICY)
    before = merged_files(store)
    compact(store)
    assert len(file_list_of(store).files) == 1
    done = delete_superseded(store, stored(store), POLICY)
    assert (done.chunks, done.replaced, done.files) == (1, 1, 2)
    assert merged_files(store) == {file.path for file in file_list_of(store).files}
    assert not merged_files(store) & before
    assert chunks(store) == [0, END]
    assert numbers(store, stored(store), 5) == list(range(5, END))
    assert problems(store) == []


def test_a_leader_that_knows_an_older_file_list_undoes_nothing(store: Store, compacted: StoredSegment) -> None:
    compact(store)
    delete_superseded(store, stored(store), POLICY)
    with pytest.raises((CorruptChunk, DataLost)):
        delete_superseded(store, compacted, POLICY)
    assert numbers(store, stored(store)) == list(range(END))
    assert problems(store) == []


# ---- what must not be deleted


def unchanged(store: Store, segment: StoredSegment, error: type[Exception], match: str) -> None:
    before = chunks(store)
    etags = {it.path: store.get(it.path).etag for it in chain_of(store).files()}
    with pytest.raises(error, match=match):
        delete_superseded(store, segment, POLICY)
    assert chunks(store) == before
    assert etags == {path: store.get(path).etag for path in etags}


@pytest.mark.parametrize("number", [0, 1])
def test_nothing_is_deleted_if_any_merged_file_is_missing(store: Store, compacted: StoredSegment, number: int) -> None:
    store.delete(file_list_of(store).files[number].path)
    unchanged(store, compacted, DataLost, "_compacted")


@pytest.mark.parametrize("number", [0, 1])
def test_nothing_is_deleted_if_any_merged_file_was_altered(store: Store, compacted: StoredSegment, number: int) -> None:
    file = file_list_of(store).files[number]
    store.put(file.path, bytes(store.get(file.path).data))
    unchanged(store, compacted, CorruptChunk, file.path)


def test_nothing_is_deleted_without_a_file_list_that_can_be_read(store: Store, compacted: StoredSegment) -> None:
    path = paths.file_list(NAME, UID, compacted.file_list)
    store.put(path, b"{")
    unchanged(store, compacted, CorruptDocument, path)
    store.delete(path)
    unchanged(store, compacted, CorruptChunk, "missing")
    assert numbers(store, replace(compacted, file_list="")) == list(range(END))


def test_nothing_is_deleted_if_the_file_list_is_of_another_end(store: Store, compacted: StoredSegment) -> None:
    unchanged(store, replace(compacted, end=END + 1), CorruptDocument, "ends at offset")


@pytest.mark.parametrize("first", [0, 2 * ROWS])
@pytest.mark.parametrize(
    "more",
    [
        {
            "reference": Reference(
                upload="u.parquet",
                etag="e",
                first_row=0,
                rows=ROWS,
                bytes=1,
                partition_min=0,
                partition_max=1,
                timestamp_min=0,
                timestamp_max=0,
            ),
            "appended": 1,
        },
        {"large_values": ("p-0-a.value",)},
    ],
)
def test_the_only_mention_of_an_upload_or_a_large_value_stays(
    store: Store, compacted: StoredSegment, first: int, more: dict[str, object]
) -> None:
    """Whatever the file list says, and whoever wrote it."""
    info = ChunkInfo(segment=segment_name(), first=first, rows=ROWS, writer="w", nonce=f"n{first}", **more)  # type: ignore[arg-type]
    rows = [] if info.reference else [(rows_of(first, ROWS), 1)]
    store.put(chain_of(store).path(first), encode_chunk(rows, info, chunk_schema(COLUMNS)))
    unchanged(store, compacted, CorruptChunk, "upload|large values")


def test_a_chain_with_a_gap_is_left_as_it_is(store: Store, compacted: StoredSegment) -> None:
    store.delete(chain_of(store).path(3 * ROWS))
    unchanged(store, compacted, CorruptChunk, "does not follow")


# ---- readers that planned before


def test_a_reader_that_planned_before_gets_an_error_that_says_to_read_the_index_again(store: Store) -> None:
    make_topic(store, chunks=CHUNKS)
    planned = file_list_of(store)
    compact(store)
    delete_superseded(store, stored(store), POLICY)
    for file in planned.files:
        with pytest.raises(DataLost, match="Read the index again"):
            list(read_file(store, segment_name(), file, file.first, file.end))


def test_a_chunk_that_something_else_altered_is_damaged_and_not_replaced(store: Store) -> None:
    make_topic(store, chunks=2)
    file = file_list_of(store).files[1]
    store.put(file.path, bytes(store.get(file.path).data))
    with pytest.raises(CorruptChunk, match="altered"):
        list(read_file(store, segment_name(), file, file.first, file.end))


def test_a_verification_names_a_merged_file_that_is_missing_once(store: Store, compacted: StoredSegment) -> None:
    delete_superseded(store, compacted, POLICY)
    path = file_list_of(store).files[1].path
    store.delete(path)
    found = [it.path for it in TopicFiles(store, NAME).problems()]
    assert found == [path]


def test_a_verification_names_a_compacted_chunk_with_rows(store: Store, compacted: StoredSegment) -> None:
    delete_superseded(store, compacted, POLICY)
    info, _ = chain_of(store).read(0) or (None, pa.table({}))
    assert info is not None
    store.put(chain_of(store).path(0), encode_chunk([(rows_of(0, ROWS), 1)], info, chunk_schema(COLUMNS)))
    assert [it.path for it in TopicFiles(store, NAME).problems()] == [chain_of(store).path(0)]


def test_what_is_done_already_costs_no_read_of_a_chunk_within_a_merged_file(
    store: Store, compacted: StoredSegment
) -> None:
    delete_superseded(store, compacted, POLICY)
    counting = CountingStore(store)
    delete_superseded(counting, compacted, POLICY)
    assert len(counting.requests.reads) == 1 + 2 + 2, "the file list, the merged files, their chunks"
    assert counting.requests.listings == 1
